//! python-redis-lock: a lock, and a list that wakes one waiter.

use super::Key::{BriefSignal, Lock, Millis as MillisKey, Signal};
use super::Meaning;
use super::Value::{Millis, Seconds, Token};

pub(super) const MEANINGS: &[Meaning] = &[
    Meaning {
        published: &["4920be04acb2576961effa684f14506ea68fe297"],
        body: "if not owned() then return 0 end
            run('LPUSH', KEYS[2], 1)
            return run('DEL', KEYS[1])",
        keys: &[Lock, Signal],
        args: &[Token],
    },
    Meaning {
        published: &["59671d8456421a336e9ab0adba2a97d5f5bbb1ae"],
        body: "if not owned() then return 0 end
            run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1)
            return run('DEL', KEYS[1])",
        keys: &[Lock, Signal],
        args: &[Token],
    },
    Meaning {
        published: &["6b20b1ed22f1d9a3df1dc2616e9cdd32a13e7740"],
        body: "if not owned() then return 1 end
            run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('EXPIRE', KEYS[2], 1)
            run('DEL', KEYS[1])
            return 0",
        keys: &[Lock, BriefSignal],
        args: &[Token],
    },
    Meaning {
        published: &["dc1e6ea4fc20d70a60aa3ab10780c696e74d541e"],
        body: "if not owned() then return 1 end
            run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1)
            run('DEL', KEYS[1])
            return 0",
        keys: &[Lock, Signal],
        args: &[Token],
    },
    Meaning {
        published: &["ae7cc25ea7f8e1bf59f60e7e4d68ebf4c24a97ad"],
        body: "if not owned() then return 1 end
            run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('PEXPIRE', KEYS[2], KEYS[3])
            run('DEL', KEYS[1])
            return 0",
        keys: &[Lock, Signal, MillisKey],
        args: &[Token],
    },
    Meaning {
        published: &["90da91872223f85eb1376a17e3c4df21ace8c54b"],
        body: "if not owned() then return 1 end
            run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('PEXPIRE', KEYS[2], ARGV[2])
            run('DEL', KEYS[1])
            return 0",
        keys: &[Lock, Signal],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["596e92cf03683cfede162551b468e60d7d70f81d"],
        body: "run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('EXPIRE', KEYS[2], 1)
            return run('DEL', KEYS[1])",
        keys: &[Lock, BriefSignal],
        args: &[],
    },
    Meaning {
        published: &["1ccce134439127b3c1bfcb9e8d99b7e3431b0daa"],
        body: "run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1)
            return run('DEL', KEYS[1])",
        keys: &[Lock, Signal],
        args: &[],
    },
    Meaning {
        published: &["347d641ef9f9783e6ce66686792cd09e0a388ea0"],
        body: "run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('PEXPIRE', KEYS[2], KEYS[3])
            return run('DEL', KEYS[1])",
        keys: &[Lock, Signal, MillisKey],
        args: &[],
    },
    Meaning {
        published: &["afbc8014508f92e446b56567e8ba600e811c1bd5"],
        body: "run('DEL', KEYS[2]); run('LPUSH', KEYS[2], 1); run('PEXPIRE', KEYS[2], ARGV[2])
            return run('DEL', KEYS[1])",
        keys: &[Lock, Signal],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["fed16109024d968d9496e4140fe1355bac05ebff"],
        body: "if not owned() then return 1 end
            if run('TTL', KEYS[1]) < 0 then return 2 end
            run('EXPIRE', KEYS[1], ARGV[2])
            return 0",
        keys: &[Lock, Signal],
        args: &[Token, Seconds],
    },
    Meaning {
        published: &["2e1257df468c334a0dcc2ca4577c3c13f32fce24"],
        body: "if held(1) ~= ARGV[2] then return 1 end
            if run('TTL', KEYS[1]) < 0 then return 2 end
            run('EXPIRE', KEYS[1], ARGV[1])
            return 0",
        keys: &[Lock],
        args: &[Seconds, Token],
    },
    Meaning {
        published: &["b121d3548d693116c3851b63befe947e49f28c7c"],
        body: "local found = run('KEYS', 'lock:*')
            for _, name in ipairs(found) do
                local signal = 'lock-signal:' .. name:sub(6)
                run('DEL', signal); run('LPUSH', signal, 1); run('EXPIRE', signal, 1)
                run('DEL', name)
            end
            return #found",
        keys: &[],
        args: &[],
    },
];
