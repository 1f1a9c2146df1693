//! One key whose value is compared with the caller's token.

use super::Key::{Channel as ChannelKey, Lock};
use super::Meaning;
use super::Value::{Channel, Millis, Seconds, Token, Word};

pub(super) const MEANINGS: &[Meaning] = &[
    Meaning {
        published: &[
            "c3f8721cbb97f72bc19e972846bd7aaf91901658",
            "d141b64a0a43e66a8576edaea6123638c0d74b31",
            "a4aada0b36710970eedaaaeec4a6b7d8c78c4f80",
            "cf0e94b2e9ffc7e04395cf88f7583fc309985910",
            "00583931c4e4d483f6233879c133c71ed5393f9d",
            "daf86bbf8740dd3ca86733367a016364b2110627",
            "8e4905cee18e7c3188d10f2b8b170e403baed34f",
            "963db4d9f0ccfdb859098be0b29f8b41dc02ed97",
            "194f3902b2dd08557818d09fc2e7682d91480e53",
            "647c65a442733a1aa440f99908d249d13b4d6c4a",
            "7157921a7cc7cfba979acf6d63f073151df17d12",
        ],
        body: "return owned() and run('DEL', KEYS[1]) or 0",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &["e950836ed1e694540c503ef9972b8de518044d3b"],
        body: "local now = held(1)
            if now == false then return -1 end
            return now == ARGV[1] and run('DEL', KEYS[1]) or 0",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &["241e4ca540a1cc4ec1f32d9eb9f879e607d7e6e5"],
        body: "local now = held(1)
            if now == false then return redis.status_reply('OK') end
            return now == ARGV[1] and run('DEL', KEYS[1]) or redis.error_reply('ERROR')",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &[
            "f0f9038aa2b6d6c3436c72d147573ea2a58f0ef2",
            "356d97191f2b63031781ccc0e8e82f02e1995a90",
        ],
        body: "return owned() and run('DEL', KEYS[1]) == 1",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &[
            "7a71e9443a2a41539fb115a5a27d5a748a871aed",
            "b2dedc0ab01c17f9f20e3e6ddb62dcb6afbed0bd",
        ],
        body: "if not owned() then return false end
            run('DEL', KEYS[1]); run('PUBLISH', ARGV[2], KEYS[1])
            return true",
        keys: &[Lock],
        args: &[Token, Channel],
    },
    Meaning {
        published: &[
            "67aebbcba76d9674162e8906de1f669866f48e07",
            "4d7192f70618a620282e427698f9cde890151e58",
        ],
        body: "if not owned() then return false end
            run('DEL', KEYS[1]); run('PUBLISH', KEYS[2], KEYS[1])
            return true",
        keys: &[Lock, ChannelKey],
        args: &[Token],
    },
    Meaning {
        published: &[
            "c1ae6c899d164de076f40ffe82eba8fb8e27af6c",
            "20b5c3728736e2367b496c16390f9df56916a76f",
        ],
        body: "if run('DEL', KEYS[1]) == 0 then return false end
            run('PUBLISH', ARGV[1], KEYS[1])
            return true",
        keys: &[Lock],
        args: &[Channel],
    },
    Meaning {
        published: &[
            "1cac51482acf5858da00f6d685d68f886cd6b6b2",
            "307044d49c8f033fbb885e9e0f1b7fe9e0e60675",
            "ba015a80261b616e7a62d35df0b8e3edbe6c9414",
            "a7aba3bc5d6e99b3003da8b9d80a63b9f4092ecf",
            "53692746b44cae854b8dfa32b177218bbe40baee",
            "d75bb8b5bd13532ddedd17762e772346e39b321e",
            "67256370c2d1c87e2250898075542b1a7fa5b917",
            "594683e49a64ebaf975caf5f8079a1d097c438f1",
        ],
        body: "return owned() and run('PEXPIRE', KEYS[1], ARGV[2]) or 0",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["879e0f7b8d83c3266d4e996627438c05dbda0b89"],
        body: "return owned() and run('PEXPIRE', KEYS[1], ARGV[2]) == 1",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["411b7c153e0ab3ba59d6d1e36cc7858ebd76f2c5"],
        body: "if not owned() or run('PTTL', KEYS[1]) < 0 then return 0 end
            return run('PEXPIRE', KEYS[1], ARGV[2])",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["4a484ac024e9b025224cd9f8e1d59dbf3c15d00d"],
        body: "if not owned() then return 0 end
            local left = run('PTTL', KEYS[1])
            if left < 0 then return 0 end
            run('PEXPIRE', KEYS[1], left + ARGV[2])
            return 1",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["a4e8783852e6b949f9ef3a97212805108459a890"],
        body: "if not owned() then return 0 end
            local left = run('PTTL', KEYS[1])
            if left < 0 then return 0 end
            run('PEXPIRE', KEYS[1], ARGV[3] == '0' and ARGV[2] + left or ARGV[2])
            return 1",
        keys: &[Lock],
        args: &[Token, Millis, Word(&["0", "1", ""])],
    },
    Meaning {
        published: &["a2c2e4c111924caec00216d4881ed37a644435ce"],
        body: "return owned() and run('EXPIRE', KEYS[1], ARGV[2]) or 0",
        keys: &[Lock],
        args: &[Token, Seconds],
    },
    Meaning {
        published: &["91d2b7405df91e02c3e2389f7f1c089b9f9e2632"],
        body: "if not owned() then return 1 end
            run('EXPIRE', KEYS[1], ARGV[2])
            return 0",
        keys: &[Lock],
        args: &[Token, Seconds],
    },
    Meaning {
        published: &["d5f94f1848f0c54fff99d99dbc4d54184a157c02"],
        body: "if not owned() then return 0 end
            if tonumber(ARGV[2]) > 0 then return run('EXPIRE', KEYS[1], ARGV[2]) end
            run('PERSIST', KEYS[1])
            return 1",
        keys: &[Lock],
        args: &[Token, Seconds],
    },
    Meaning {
        published: &["17a49af0c4b1a9034503fa84f3570f5ca76c4cbf"],
        body: "if not owned() then return 0 end
            run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
            return 1",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["009e6775acf362b837433e2ab6f2b772e391079e"],
        body: "return owned() and run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2]) or 'ERR'",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &[
            "f458acd98fe495b8e4ff97c0f53f745f2c4aa252",
            "f5f7bd3a3aa4a63c507c1155c5ea1219b350d992",
        ],
        body: "return owned() and math.max(run('PTTL', KEYS[1]), 0) or 0",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &["6484da7d58920897fdc22b7f9afd1a3d47524ea8"],
        body: "return owned() and run('PTTL', KEYS[1]) or -3",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &["f908d3f43dbcabc68fc0c9ecaf1fa4a285ecdb0a"],
        body: "return owned() and run('TTL', KEYS[1]) or redis.error_reply('ERROR')",
        keys: &[Lock],
        args: &[Token],
    },
    Meaning {
        published: &[
            "cd1ae9bb543136ebc0a80a277cd59a7cec83b296",
            "78d2ca48a6dc9ef6892059792a3a0c5237733d64",
        ],
        body: "local now = held(1)
            return {now, run('PTTL', KEYS[1])}",
        keys: &[Lock],
        args: &[],
    },
];
