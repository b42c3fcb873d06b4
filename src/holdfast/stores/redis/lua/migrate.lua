-- migrate: {} -> 1 if the shard has the current format now, 0 if it holds jobs that it cannot
-- convert.
--
-- Format 6 stores the join of one parent and few edges beside the row, not in it, and reads as it is.
-- Format 5 stores the joins of parents by sequence, not by name, and its programs would run jobs
-- that end with their parents. The joins are stored anew, in one step. Format 4 has no journals,
-- edges and parents, and reads as it is; but its programs would not follow edges.
--
-- Format 3 differs by packs: many jobs in one value. A shard whose packs hold no jobs is converted:
-- what is left of the packs is deleted, and the event log starts anew, because it may describe many
-- jobs in one event. Readers of the log are told that they lost their place. Formats before 3 are
-- not converted.

local function name_joins()
  local name = key('parents')
  local flat, seqs = call('HGETALL', name), {}
  for at = 1, #flat, 2 do seqs[#seqs + 1] = flat[at] end
  rows.load(seqs)
  for at = 1, #flat, 2 do
    local row = rows.get(flat[at])
    hput(name, flat[at], false)
    if row then
      hput(name, rows.name_of(row), flat[at + 1] .. (row.state == WAITING and row.seq or ''))
    end
  end
end

local format = heads.format
if format == LAYOUT then return 1 end
local is_empty = heads.seq == 0 and format == 0
if format >= 4 and format < LAYOUT then
  base.insist()
  if format == 5 then name_joins() end
  base.finish()
  call('HSET', KEYS[2], 'format', LAYOUT)
  return 1
end
if not is_empty and (format ~= 3 or call('EXISTS', key('loads')) == 1) then return 0 end
base.insist()
call('DEL', key('packs'), key('marks'), key('spans'), key('trails'), key('ended_packs'),
  key('events'), key('tails'))
call('HDEL', KEYS[2], 'packs')
base.set_head('floor', heads.cursor)
base.set_head('format', LAYOUT)
base.finish()
return 1
