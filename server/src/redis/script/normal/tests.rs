//! What has one normal form, and what has not.

use super::*;
use proptest::prelude::*;

fn same(texts: &[&str]) {
    let expected = form(texts[0].as_bytes());
    assert!(expected.is_some(), "{}", texts[0]);
    for text in texts {
        assert_eq!(form(text.as_bytes()), expected, "{text}");
    }
}

fn all_different(texts: &[&str]) {
    for (at, text) in texts.iter().enumerate() {
        let form_of_this = form(text.as_bytes());
        assert!(form_of_this.is_some(), "{text}");
        for other in &texts[..at] {
            assert_ne!(form(other.as_bytes()), form_of_this, "{other}\n{text}");
        }
    }
}

#[test]
fn blanks_comments_and_semicolons_do_not_matter() {
    same(&[
        "if a == 1 then b() end return 2",
        "if a==1 then b();end;return 2;",
        "if a == 1 -- really\n then\n\tb()\r\nend --[[ and\n then ]] return 2\n",
        "--[==[ ]] ]==]if a == 1 then b() end return 2",
    ]);
}

#[test]
fn quotes_do_not_matter() {
    same(&[
        "return f('it', \"is\")",
        "return f(\"it\", 'is')",
        "return f([[it]], [=[is]=])",
        "return f('\\105t', \"\\is\")",
    ]);
}

#[test]
fn case_matters_but_for_commands_and_options() {
    same(&[
        "redis.call('SET', k, 'NX', 'PX')",
        "redis.call('set', k, 'nx', 'px')",
        "redis.call(\"Set\", k, 'Nx', 'pX')",
    ]);
    same(&["redis.pcall('DEL', 'K')", "redis.pcall('del', 'K')"]);
    all_different(&[
        "redis.call('set', 'K')",
        "redis.call('set', 'k')",
        "redis.pcall('set', 'K')",
        "redis.sha1hex('SET', 'K')",
        "redis.sha1hex('set', 'K')",
        "redis.call(X, 'SET')",
        "redis.call(X, 'set')",
        "REDIS.call('set', 'K')",
        "other.redis.call('SET', 'K')",
        "other.redis.call('set', 'K')",
    ]);
    all_different(&[
        "local redis = r redis.call('GET')",
        "local redis = r redis.call('get')",
    ]);
}

#[test]
fn names_of_local_variables_do_not_matter() {
    same(&[
        "local token, ttl = f() if token then return ttl end",
        "local a, b = f() if a then return b end",
        "local ttl, token = f() if ttl then return token end",
    ]);
    same(&[
        "for i, key in ipairs(KEYS) do g(key, i) end return key",
        "for _, k in ipairs(KEYS) do g(k, _) end return key",
    ]);
    same(&[
        "local function f(x, y) return x end return f(y)",
        "local function first(a, b) return a end return first(y)",
    ]);
    same(&[
        "return g(function(a, ...) return a end)",
        "return g(function(b, ...) return b end)",
    ]);
    same(&[
        "for i = 1, #KEYS, 1 do f(i) end",
        "for n = 1, #KEYS, 1 do f(n) end",
    ]);
}

#[test]
fn which_variable_is_meant_matters() {
    all_different(&[
        "local a, b = f() return a",
        "local a, b = f() return b",
        "local a, b = f() return c",
        "local b = f() return a",
        "a, b = f() return a",
    ]);
    all_different(&[
        "local a = 1 local b = 2 return a",
        "local a = 1 local a = 2 return a",
    ]);
    same(&[
        "local a = 1 local a = 2 return a",
        "local x = 1 local y = 2 return y",
    ]);
    all_different(&["local t = f() return t.t", "local t = f() return t.u"]);
    same(&["local t = f() return t.u", "local u = f() return u.u"]);
}

#[test]
fn a_variable_is_known_to_the_end_of_its_block() {
    same(&["do local a = 1 end return a", "do local b = 1 end return a"]);
    all_different(&["do local a = 1 return a end", "do local a = 1 end return a"]);
    same(&[
        "if c then local a = 1 f(a) elseif a then f(a) else local a = 2 f(a) end return a",
        "if c then local x = 1 f(x) elseif a then f(a) else local y = 2 f(y) end return a",
    ]);
    same(&[
        "local a = 0 for a in f(a) do while a do local a = 1 g(a) end g(a) end return a",
        "local v = 0 for w in f(w) do while w do local x = 1 g(x) end g(w) end return v",
    ]);
    same(&[
        "local f = function(a) local b = a return b end return f(a, b)",
        "local g = function(x) local y = x return y end return g(a, b)",
    ]);
}

#[test]
fn tokens_do_not_run_into_each_other() {
    all_different(&["f('ab', 'c')", "f('a', 'bc')", "f('ab,c')", "f(ab, c)"]);
    all_different(&[
        "return a..b",
        "return a.b",
        "return 'a'..b",
        "return 1",
        "return '1'",
    ]);
    all_different(&[
        "if a == b then c() end",
        "if a ~= b then c() end",
        "if a = b then c() end",
    ]);
}

#[test]
fn a_text_that_is_too_long_or_not_lua_has_no_form() {
    let long = format!("return 1{}", " ".repeat(SCRIPT_BYTES_MAX - 8));
    assert!(form(long.as_bytes()).is_some());
    assert_eq!(form(format!("{long} ").as_bytes()), None);
    for text in ["return 'a", "#!lua name=x", "return 1 end", "--[[", "a ! b"] {
        assert_eq!(form(text.as_bytes()), None, "{text}");
    }
}

proptest! {
    #[test]
    fn any_bytes_are_taken(bytes: Vec<u8>) {
        let _ = form(&bytes);
    }

    #[test]
    fn any_words_are_taken(
        words in proptest::collection::vec(
            prop::sample::select(vec![
                "local", "function", "for", "in", "do", "end", "if", "then", "else", "elseif", "repeat", "until", "while",
                "return", "a", "b", "redis", ".", "call", "(", ")", ",", "=", "'GET'", "1", "...", ";", ":", "--", "[[", "\n",
            ]),
            0..60,
        )
    ) {
        let _ = form(words.join(" ").as_bytes());
    }

    #[test]
    fn other_names_have_the_same_form(names in proptest::collection::vec("[a-z]{1,3}_", 3)) {
        prop_assume!(names[0] != names[1] && names[1] != names[2] && names[0] != names[2]);
        let text = |a: &str, b: &str, c: &str| {
            format!("local {a} = f() for {b}, {c} in {a} do if {c} then return {b} end end return {a}")
        };
        let renamed = text(&names[0], &names[1], &names[2]);
        prop_assert_eq!(form(renamed.as_bytes()), form(text("x", "y", "z").as_bytes()));
    }
}
