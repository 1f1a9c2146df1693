//! The two programs that every manual shows: release and renewal of a lock whose value is compared.
//! Users retype them in a few ways: with the value in a variable, with brackets around the
//! condition, with or without an `else`, and with a number of their own for an answer.

use super::Script;
use super::normal::{self, Form};
use super::owned::Owned;

/// What stands before the condition, and the value in it.
const VALUES: [(&str, &str); 2] = [
    ("", "redis.call('get', KEYS[1])"),
    ("local value = redis.call('get', KEYS[1])", "value"),
];

/// What is done with the caller's lock.
const ACTIONS: [(&str, Owned); 4] = [
    ("redis.call('del', KEYS[1])", Owned::Delete),
    ("redis.call('unlink', KEYS[1])", Owned::Delete),
    ("redis.call('pexpire', KEYS[1], ARGV[2])", Owned::Expire),
    (
        "redis.call('expire', KEYS[1], ARGV[2])",
        Owned::ExpireSeconds,
    ),
];

/// The normal forms of all these spellings.
pub(super) fn forms() -> Vec<(Form, Script)> {
    let mut forms = Vec::new();
    for (before, value) in VALUES {
        for condition in [
            format!("{value} == ARGV[1]"),
            format!("({value} == ARGV[1])"),
        ] {
            for (action, script) in ACTIONS {
                for answer in [format!("return {action}"), format!("{action} return 1")] {
                    for rest in ["else return 0 end", "end return 0"] {
                        let text = format!("{before} if {condition} then {answer} {rest}");
                        let form = normal::form(text.as_bytes());
                        forms.extend(form.map(|form| (form, Script::Owned(script))));
                    }
                }
            }
        }
    }
    forms
}
