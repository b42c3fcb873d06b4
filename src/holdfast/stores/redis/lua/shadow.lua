-- shadow: {tenant, source or '', ids, after or nil, limit} -> {the instant, sources, rows}. A source
-- is {name, stamp, number of rows, their bytes, state}, a row {id, what is stored}. Without a source
-- those of the tenant, after a name. Reads only; steps are in enqueue.lua.

local tenant, source, ids, after, limit = ARGS[1], ARGS[2], ARGS[3], ARGS[4], ARGS[5]
local sources, found = {}, {}

local function add_source(name)
  local stamp, size, state = shadow.read(tenant, name)
  if not stamp then return false end
  sources[#sources + 1] = {name, stamp, shadow.count(tenant, name), whole(size), state}
  return true
end

local function add_rows(some)
  for at, text in ipairs(shadow.rows(tenant, source, some)) do
    if text then found[#found + 1] = {some[at], text} end
  end
end

if source == '' then
  for _, name in ipairs(shadow.names(tenant)) do
    if #sources >= limit then break end
    if name > (after or '') then add_source(name) end
  end
elseif add_source(source) then
  add_rows(ids)
  if after and limit > 0 then add_rows(shadow.page(tenant, source, after, limit)) end
end
return {whole(NOW), sources, found}
