use super::*;

fn words(line: &[u8]) -> Result<Vec<Vec<u8>>, ProtocolError> {
    let mut unquoted = Vec::new();
    let mut ranges = Vec::new();
    split(line, &mut unquoted, |range| ranges.push(range))?;
    Ok(ranges
        .into_iter()
        .map(|range| unquoted[range].to_vec())
        .collect())
}

#[track_caller]
fn assert_words(line: &[u8], expected: &[&[u8]]) {
    let words = words(line).unwrap();
    assert_eq!(words, expected, "{}", line.escape_ascii());
}

#[test]
fn blanks_of_every_kind_separate() {
    assert_words(b"SET k v", &[b"SET", b"k", b"v"]);
    assert_words(b" \t GET\x0b\x0ck  ", &[b"GET", b"k"]);
    assert_words(b"", &[]);
    assert_words(b"  \t ", &[]);
}

#[test]
fn double_quotes_know_escapes() {
    assert_words(
        br#"SET "a b" "\n\r\t\b\a\\\"\q""#,
        &[b"SET", b"a b", b"\n\r\t\x08\x07\\\"q"],
    );
    assert_words(br#""\x00\xfF\x4a""#, &[b"\x00\xffJ"]);
    assert_words(br#""\xg0\x1""#, &[b"xg0x1"]);
    assert_words(br#""" x"#, &[b"", b"x"]);
}

#[test]
fn single_quotes_know_one_escape() {
    assert_words(br"'a \'b\' \n \x41'", &[br"a 'b' \n \x41"]);
    assert_words(b"'' x", &[b"", b"x"]);
}

#[test]
fn a_quote_may_begin_inside_a_word() {
    assert_words(br#"k"e y" v"#, &[b"ke y", b"v"]);
    assert_words(br"k'e y'", &[b"ke y"]);
}

#[test]
fn a_quote_that_does_not_end_its_word_is_refused() {
    for line in [
        &br#"GET "k"#[..],
        br#"GET "k\""#,
        br#"GET "k\"#,
        br"GET 'k",
        br"GET 'k\'",
        br#"GET "k"v"#,
        br"GET 'k'v",
        br#"GET "a"b""#,
        br#"""""#,
    ] {
        assert_eq!(
            words(line),
            Err(ProtocolError::UnbalancedQuotes),
            "{}",
            line.escape_ascii()
        );
    }
}
