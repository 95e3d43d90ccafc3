-- Generates the requests of wrk and reports its results. Arguments: work, key and entries.

function init(args)
  local work, key, entries = args[1], args[2], tonumber(args[3])
  -- Not wrk.format: its headers are in another order in each run, for which V8 would compile the server's code again.
  local headers = "\r\nHost: " .. wrk.host .. ":" .. wrk.port .. "\r\nAuthorization: Bearer " .. key .. "\r\n"
  local list = "GET /v1/inventory HTTP/1.1" .. headers .. "\r\n"

  local function update()
    local target = "/v1/inventory/" .. math.random(1, entries)
    local body = string.format('{"quantity":%d}', math.random(0, 999))
    return "PATCH " .. target .. " HTTP/1.1" .. headers .. "Content-Type: application/json\r\nContent-Length: "
      .. #body .. "\r\n\r\n" .. body
  end

  -- The same in every run, so that all contenders get the same requests.
  math.randomseed(1)
  local share = ({ update = 1, mix = 0.1 })[work] or 0
  -- Formatted in advance, so that wrk does not format requests while it measures.
  requests = {}
  for i = 1, share > 0 and 10000 or 1 do
    requests[i] = i <= share * 10000 and update() or list
  end
end

function request()
  return requests[math.random(#requests)]
end

function done(summary, latency)
  local errors = summary.errors
  print(string.format(
    '{"count":%d,"perSecond":%.1f,"p50":%.4f,"p99":%.4f,"errors":%d}',
    summary.requests, summary.requests / summary.duration * 1e6,
    latency:percentile(50) / 1000, latency:percentile(99) / 1000,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
