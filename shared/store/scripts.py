"""The scripts that run inside the store, each as one atomic step.

They are sent as text each time (EVAL): a server that restarted empty then needs no second round trip, and the server
keeps the compiled form by itself. The keys of a script share one hash slot, so that they run on a cluster too.
"""

from dataclasses import dataclass
from typing import Any, TypeAlias

Argument: TypeAlias = str | bytes | int


@dataclass(frozen=True, slots=True)
class Script:
    """``keys`` says how many of the arguments are keys; they come first.

    ``when_full``: it also runs on a server that has reached its ``maxmemory``. What leads out of there must work there:
    going back to an older snapshot, and removing one.
    ``reads``: it changes nothing and is sent as such, so that a user who may only read may send it.
    """

    text: str
    keys: int
    when_full: bool = False
    reads: bool = False

    def call(self, *arguments: Argument) -> tuple[Any, ...]:
        """The command to send."""
        flags = "#!lua flags=allow-oom\n" if self.when_full else ""
        return ("EVAL_RO" if self.reads else "EVAL", flags + self.text.strip(), self.keys, *arguments)


# KEYS active, snapshots -> {snapshot, epoch, metadata}, or nil where nothing was promoted yet
ACTIVE = Script(
    """
local pointer = redis.call('HMGET', KEYS[1], 'snapshot', 'epoch')
if not pointer[1] then return false end
return {pointer[1], pointer[2], redis.call('HGET', KEYS[2], pointer[1])}
""",
    keys=2,
    reads=True,
)

# KEYS lease, epoch; ARGV value, milliseconds, holder to replace or '' -> the new epoch, or the present holder's value
ACQUIRE = Script(
    """
local held = redis.call('GET', KEYS[1])
if held and (ARGV[3] == '' or string.match(held, '^%S+ (.*)$') ~= ARGV[3]) then return held end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return redis.call('INCR', KEYS[2])
""",
    keys=2,
    when_full=True,
)

# KEYS lease; ARGV value, milliseconds -> 1, or 0 where the lease is not ours any more
RENEW = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return 1
""",
    keys=1,
)

# KEYS lease; ARGV value -> 1, or 0 where the lease was not ours any more
RELEASE = Script(
    """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
""",
    keys=1,
)

# KEYS active, states, snapshots; ARGV snapshot, metadata
# An active snapshot that is loaded once more stays what it is: its values do not change by that.
BEGIN = Script(
    """
redis.call('HSET', KEYS[3], ARGV[1], ARGV[2])
if redis.call('HGET', KEYS[1], 'snapshot') ~= ARGV[1] then
  redis.call('HSET', KEYS[2], ARGV[1], 'writing')
end
return 'ok'
""",
    keys=3,
)

# KEYS active, lease, epoch, states, history
# ARGV snapshot, lease value, lease epoch, at, forced (0 or 1), history entry, history length -> 'ok' or why not
PROMOTE = Script(
    """
if redis.call('GET', KEYS[2]) ~= ARGV[2] or redis.call('GET', KEYS[3]) ~= ARGV[3] then return 'fenced' end
local state = redis.call('HGET', KEYS[4], ARGV[1])
if not state then return 'missing' end
if state == 'held' then
  if ARGV[5] ~= '1' then return 'held' end
  redis.call('HSET', KEYS[4], ARGV[1], 'ready')
elseif state ~= 'ready' then
  return state
end
redis.call('HSET', KEYS[1], 'snapshot', ARGV[1], 'epoch', ARGV[3], 'at', ARGV[4])
redis.call('LPUSH', KEYS[5], ARGV[6])
redis.call('LTRIM', KEYS[5], 0, ARGV[7] - 1)
return 'ok'
""",
    keys=5,
    when_full=True,
)

# KEYS active, states; ARGV snapshot, forced (0 or 1) -> 'ok' or why not
# From here on nobody can promote it. A snapshot that is being retired may always be retired again.
RETIRING = Script(
    """
if redis.call('HGET', KEYS[1], 'snapshot') == ARGV[1] then return 'active' end
local state = redis.call('HGET', KEYS[2], ARGV[1])
if not state then return 'missing' end
if ARGV[2] ~= '1' and (state == 'held' or state == 'writing') then return state end
redis.call('HSET', KEYS[2], ARGV[1], 'retiring')
return 'ok'
""",
    keys=2,
    when_full=True,
)

# KEYS states, snapshots; ARGV snapshot -> how many snapshots are left
# One that was begun anew meanwhile is somebody else's now, and stays.
RETIRED = Script(
    """
if redis.call('HGET', KEYS[1], ARGV[1]) == 'retiring' then
  redis.call('HDEL', KEYS[1], ARGV[1])
  redis.call('HDEL', KEYS[2], ARGV[1])
end
return redis.call('HLEN', KEYS[2])
""",
    keys=2,
)

# KEYS states or snapshots; ARGV snapshot, value -> 1, or 0 where the snapshot is not known
REPLACE = Script(
    """
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return 0 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
return 1
""",
    keys=1,
    when_full=True,
)

# KEYS active, lease, epoch, snapshots; ARGV snapshot, lease value, lease epoch, metadata -> 'ok' or why not
AMEND = Script(
    """
if redis.call('GET', KEYS[2]) ~= ARGV[2] or redis.call('GET', KEYS[3]) ~= ARGV[3] then return 'fenced' end
if redis.call('HGET', KEYS[1], 'snapshot') ~= ARGV[1] then return 'inactive' end
redis.call('HSET', KEYS[4], ARGV[1], ARGV[4])
return 'ok'
""",
    keys=4,
    when_full=True,
)

# KEYS bucket; ARGV id, value, id, value, ... -> how many were written: all, or 0 where the bucket is not there
# The marker is looked for, not the key: a reader with an old pointer must not bring a retired bucket back to life.
WRITE_VALUES = Script(
    """
if redis.call('HEXISTS', KEYS[1], '') == 0 then return 0 end
redis.call('HSET', KEYS[1], unpack(ARGV))
return #ARGV / 2
""",
    keys=1,
)
