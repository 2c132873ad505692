-- wrk goes through a book of requests (METHOD PATH [BODY], one a line), again and again, and says what it found as JSON.
local requests, place = {}, 0

function init(arguments)
   local headers = { ["Content-Type"] = "application/json" }
   for line in io.lines(arguments[1]) do
      local method, path, body = line:match("^(%S+) (%S+) ?(.*)$")
      if body == "" then
         requests[#requests + 1] = wrk.format(method, path)
      else
         requests[#requests + 1] = wrk.format(method, path, headers, body)
      end
   end
end

function request()
   place = place % #requests + 1
   return requests[place]
end

function done(summary, latency)
   local found = summary.errors
   io.write(string.format(
      'bench {"answers": %d, "micros": %d, "statuses": %d, "broken": %d, "p50": %d, "p99": %d}\n',
      summary.requests, summary.duration, found.status, found.connect + found.read + found.write + found.timeout,
      latency:percentile(50), latency:percentile(99)))
end
