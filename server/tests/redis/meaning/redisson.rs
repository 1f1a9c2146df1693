//! Redisson's lock: a hash of one field, which counts how often it is held, and a channel that
//! wakes its waiters.

use super::Key::{Channel as ChannelKey, Latch, Lock, Locks};
use super::Meaning;
use super::Value::{self, Millis, Token, Word};

const PUBLISH: Value = Word(&["publish", "PUBLISH", "spublish"]);

pub(super) const MEANINGS: &[Meaning] = &[
    Meaning {
        published: &[
            "9401052d872adfd0179ef8c8e8c028512707629a",
            "dad0f8d619e548e04f21fb48d50be5034df3adae",
            "149c5a8bf18676fd99e9e6e24923bd64d9b62f94",
        ],
        body: "if run('EXISTS', KEYS[1]) == 1 and run('HEXISTS', KEYS[1], ARGV[2]) == 0 then
                return run('PTTL', KEYS[1])
            end
            run('HINCRBY', KEYS[1], ARGV[2], 1); run('PEXPIRE', KEYS[1], ARGV[1])
            return nil",
        keys: &[Lock],
        args: &[Millis, Token],
    },
    Meaning {
        published: &["93cfc048f82624d1670a310aa0ad58918c0824a5"],
        body: "if run('EXISTS', KEYS[1]) == 1 then
                if run('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
                if run('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
                    run('PEXPIRE', KEYS[1], ARGV[2])
                    return 0
                end
                run('DEL', KEYS[1])
            end
            run('PUBLISH', KEYS[2], ARGV[1])
            return 1",
        keys: &[Lock, ChannelKey],
        args: &[Token, Millis, Token],
    },
    Meaning {
        published: &["3ffe249c16dee540ac8ab32e39bd408626b9aff7"],
        body: "if run('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
            if run('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
                run('PEXPIRE', KEYS[1], ARGV[2])
                return 0
            end
            run('DEL', KEYS[1]); run('PUBLISH', KEYS[2], ARGV[1])
            return 1",
        keys: &[Lock, ChannelKey],
        args: &[Token, Millis, Token],
    },
    Meaning {
        published: &["778cea8aada230ae060b432fc333adaec85f2f4c"],
        body: "if run('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
            if run('HINCRBY', KEYS[1], ARGV[3], -1) > 0 then
                run('PEXPIRE', KEYS[1], ARGV[2])
                return 0
            end
            run('DEL', KEYS[1]); run(ARGV[4], KEYS[2], ARGV[1])
            return 1",
        keys: &[Lock, ChannelKey],
        args: &[Token, Millis, Token, PUBLISH],
    },
    Meaning {
        published: &["6866459238a13a701d42f4971f12d9f3a50e2442"],
        body: "local answered = held(3)
            if answered ~= false then return tonumber(answered) end
            if run('HEXISTS', KEYS[1], ARGV[3]) == 0 then return nil end
            local is_last = run('HINCRBY', KEYS[1], ARGV[3], -1) <= 0
            if is_last then
                run('DEL', KEYS[1]); run(ARGV[4], KEYS[2], ARGV[1])
            else
                run('PEXPIRE', KEYS[1], ARGV[2])
            end
            local answer = is_last and 1 or 0
            run('SET', KEYS[3], answer, 'PX', ARGV[5])
            return answer",
        keys: &[Lock, ChannelKey, Latch],
        args: &[Token, Millis, Token, PUBLISH, Millis],
    },
    Meaning {
        published: &["7e9c80b3d786b95d5d4aaf8fd73adb9775fa6fb1"],
        body: "if run('DEL', KEYS[1]) == 0 then return 0 end
            run('PUBLISH', KEYS[2], ARGV[1])
            return 1",
        keys: &[Lock, ChannelKey],
        args: &[Token],
    },
    Meaning {
        published: &["605e338249a7a1d40df83b04f7658354f883b41b"],
        body: "if run('DEL', KEYS[1]) == 0 then return 0 end
            run(ARGV[2], KEYS[2], ARGV[1])
            return 1",
        keys: &[Lock, ChannelKey],
        args: &[Token, PUBLISH],
    },
    Meaning {
        published: &["8e19a1ddbdee9138df9f32a480c57addab4353d1"],
        body: "local is_mine = run('HEXISTS', KEYS[1], ARGV[2])
            if is_mine == 1 then run('PEXPIRE', KEYS[1], ARGV[1]) end
            return is_mine",
        keys: &[Lock],
        args: &[Millis, Token],
    },
    Meaning {
        published: &["6a3d31570dc6f4b0bd32bcdc8e75667747c6f635"],
        body: "local answers = {}
            for number, name in ipairs(KEYS) do
                answers[number] = run('HEXISTS', name, ARGV[number + 1])
                if answers[number] == 1 then run('PEXPIRE', name, ARGV[1]) end
            end
            return answers",
        keys: &[Locks],
        args: &[Millis, Token, Token, Token],
    },
];
