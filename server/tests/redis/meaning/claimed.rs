//! One key that is taken if it is free, or kept if it is the caller's.

use super::Key::Lock;
use super::Meaning;
use super::Value::{Length, Millis, MillisOrNone, Seconds, Token, Word};

pub(super) const MEANINGS: &[Meaning] = &[
    Meaning {
        published: &["862f31bf38e9b63ce28d6e9e5143551bb34ef981"],
        body: "return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX')",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["5688a2541c9edd77746bcd2385e65ff3639a664f"],
        body: "local is_new = run('SETNX', KEYS[1], ARGV[1])
            if is_new == 1 and ARGV[2] ~= '' then run('PEXPIRE', KEYS[1], ARGV[2]) end
            return is_new",
        keys: &[Lock],
        args: &[Token, MillisOrNone],
    },
    Meaning {
        published: &["a08c9c69b7c07ae2485190873b90d128a23e502d"],
        body: "if run('EXISTS', KEYS[1]) > 0 then return false end
            return run('SETEX', KEYS[1], ARGV[2], ARGV[1])",
        keys: &[Lock],
        args: &[Token, Seconds],
    },
    Meaning {
        published: &["7fe7b0bc5c4277123d3b46d49d1c5a8bc6e4fe8a"],
        body: "if run('EXISTS', KEYS[1]) == 1 and not owned() then return nil end
            return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["c75a9bf1538efcdb1f383acc3e273c5089d57e58"],
        body: "local now = held(1)
            if now and now ~= ARGV[1] then return redis.error_reply('ERROR') end
            return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &[
            "a90bf4be8a6e440e3cc24540eb2f9ff1e16fbcc3",
            "ceb2b2062e40c51a2b3963fd078bc71f11bdc65c",
        ],
        body: "local is_free = run('EXISTS', KEYS[1]) == 0
            if not (is_free and ARGV[3] == 'yes') and not owned() then return nil end
            return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])",
        keys: &[Lock],
        args: &[Token, Millis, Word(&["yes", "no"])],
    },
    Meaning {
        published: &[
            "8426c8df41c64d8177dce3ecbbe9146ef3759cd2",
            "6d2bc6d16248df19e144841297222544e3c7800a",
            "175897a4e379e99e79a54937be09226f76cdcfe5",
        ],
        body: "local now = held(1)
            if now and now ~= ARGV[1] then return false end
            if now then
                run('PEXPIRE', KEYS[1], ARGV[2])
            else
                run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
            end
            return true",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["b6b55c439e02c6f52ffb8be7ec8c0d0ac816ea79"],
        body: "if owned() then return run('PEXPIRE', KEYS[1], ARGV[2]) end
            return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') and 1 or 0",
        keys: &[Lock],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["80a1b5f2cfccec3b7119ba7721d2127682b691a7"],
        body: "local is_new = run('SET', KEYS[1], ARGV[1], 'PX', ARGV[3], 'NX')
            if is_new then return is_new end
            local offset = tonumber(ARGV[2])
            local now = run('GETRANGE', KEYS[1], 0, offset - 1)
            if now ~= ARGV[1]:sub(1, offset) then return nil end
            return run('SET', KEYS[1], ARGV[1], 'PX', ARGV[3])",
        keys: &[Lock],
        args: &[Token, Length, Millis],
    },
];
