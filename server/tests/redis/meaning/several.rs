//! Many keys, all or nothing.

use super::Key::Locks;
use super::Meaning;
use super::Value::{self, Length, Millis, Token, Word};

const DATABASE: Value = Word(&["0", "1", "15", "16", "abc"]);

pub(super) const MEANINGS: &[Meaning] = &[
    Meaning {
        published: &[
            "d01fb69e6ecc8bad3ca9bacba9f4f9e96862313f",
            "e5a322e2634ef59a516e8ea150cb085afafee684",
            "96da70f7716f27d278a5218544df37fd8b0a5e4c",
        ],
        body: "if not all(function(name) return run('EXISTS', name) == 0 end) then return 0 end
            each(function(name) run('SET', name, ARGV[1], 'PX', ARGV[2]) end)
            return #KEYS",
        keys: &[Locks],
        args: &[Token, Millis],
    },
    Meaning {
        published: &[
            "acaf90b4697bb48bb5f603e9e613a54df7536c70",
            "1d48b4c6fea2cdadc46b3346de5c2eaf121c7bb3",
            "ce46f80993d5dac20dd066eb301a4e37994bdbed",
            "aed6f382e410db8ba7926d4e5e9aab410bf2a78a",
        ],
        body: "if not all(function(name) return run('GET', name) == ARGV[1] end) then return 0 end
            each(function(name) run('SET', name, ARGV[1], 'PX', ARGV[2]) end)
            return #KEYS",
        keys: &[Locks],
        args: &[Token, Millis],
    },
    Meaning {
        published: &[
            "517e7ed95f00c0c4a209c6a7afcc6ab797d30b85",
            "0f0f23b9048b36752b5be114f357ba083449f908",
            "e4612211c9f8f51c257e26e056b0a654b3187242",
        ],
        body: "local gone = 0
            each(function(name)
                if run('GET', name) == ARGV[1] then gone = gone + run('DEL', name) end
            end)
            return gone",
        keys: &[Locks],
        args: &[Token],
    },
    Meaning {
        published: &["1b77b94aa78451d55dfa97e18819bfbfc596cb5b"],
        body: "redis.pcall('SELECT', tonumber(ARGV[1]))
            if not all(function(name) return run('EXISTS', name) == 0 end) then return 0 end
            each(function(name) run('SET', name, ARGV[2], 'PX', ARGV[3]) end)
            return #KEYS",
        keys: &[Locks],
        args: &[DATABASE, Token, Millis],
    },
    Meaning {
        published: &["820e9778d2b6733e9ed771e4be90ae73a95a6f3b"],
        body: "redis.pcall('SELECT', tonumber(ARGV[1]))
            if not all(function(name) return run('GET', name) == ARGV[2] end) then return 0 end
            each(function(name) run('SET', name, ARGV[2], 'PX', ARGV[3]) end)
            return #KEYS",
        keys: &[Locks],
        args: &[DATABASE, Token, Millis],
    },
    Meaning {
        published: &["df51f6837dcfe303d334e6abea9aeae192bab216"],
        body: "redis.pcall('SELECT', tonumber(ARGV[1]))
            local gone = 0
            each(function(name)
                if run('GET', name) == ARGV[2] then gone = gone + run('DEL', name) end
            end)
            return gone",
        keys: &[Locks],
        args: &[DATABASE, Token],
    },
    Meaning {
        published: &["eb0c00d98f6f33b4262419a509002884540f30be"],
        body: "local pairs_of = {}
            each(function(name) table.insert(pairs_of, name); table.insert(pairs_of, ARGV[1]) end)
            if run('MSETNX', unpack(pairs_of)) == 0 then
                local is_mine = all(function(name)
                    local offset = tonumber(ARGV[2])
                    return run('GETRANGE', name, 0, offset - 1) == ARGV[1]:sub(1, offset)
                end)
                if not is_mine then return false end
                run('MSET', unpack(pairs_of))
            end
            each(function(name) run('PEXPIRE', name, ARGV[3]) end)
            return redis.status_reply('OK')",
        keys: &[Locks],
        args: &[Token, Length, Millis],
    },
    Meaning {
        published: &["66e1084c2d842a7e8c271925aae90219fac4e129"],
        body: "for _, now in ipairs(run('MGET', unpack(KEYS))) do
                if now ~= ARGV[1] then return false end
            end
            local least = 0
            each(function(name)
                local left = run('PTTL', name)
                if left > 0 and (least == 0 or left < least) then least = left end
            end)
            return least",
        keys: &[Locks],
        args: &[Token],
    },
    Meaning {
        published: &["5a22d7e8431313862816d4416b5e46dd70fc340d"],
        body: "for _, now in ipairs(run('MGET', unpack(KEYS))) do
                if now ~= ARGV[1] then return false end
            end
            each(function(name) run('PEXPIRE', name, ARGV[2]) end)
            return redis.status_reply('OK')",
        keys: &[Locks],
        args: &[Token, Millis],
    },
    Meaning {
        published: &["9470c810040e272ee6c579d8d4331aaf6332a7b1"],
        body: "for _, now in ipairs(run('MGET', unpack(KEYS))) do
                if now ~= ARGV[1] then return false end
            end
            run('DEL', unpack(KEYS))
            return redis.status_reply('OK')",
        keys: &[Locks],
        args: &[Token],
    },
];
