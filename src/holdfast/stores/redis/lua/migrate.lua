-- migrate: {} -> 1 if the shard has the current format now, 0 if it holds jobs that it cannot
-- convert.
--
-- Formats 4 and 5 read as they are, but their programs do less: those of format 4 would not follow
-- edges, those of format 5 would run jobs that end with their parents. Format 3 differs by packs: many jobs in one value. A shard whose packs hold no jobs is converted:
-- what is left of the packs is deleted, and the event log starts anew, because it may describe many
-- jobs in one event. Readers of the log are told that they lost their place. Formats before 3 are
-- not converted.

local format = heads.format
if format == LAYOUT then return 1 end
local is_empty = heads.seq == 0 and format == 0
if format == 4 or format == 5 then
  base.insist()
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
