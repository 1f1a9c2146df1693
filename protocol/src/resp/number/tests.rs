use super::*;

#[test]
fn every_number_has_one_spelling() {
    for value in [
        0,
        1,
        9,
        10,
        -1,
        -10,
        65_536,
        i64::MAX,
        i64::MIN,
        i64::MIN + 1,
    ] {
        assert_eq!(parse_integer(value.to_string().as_bytes()), Some(value));
    }
}

#[test]
fn other_spellings_are_refused() {
    for text in [
        "",
        "-",
        "+1",
        "01",
        "-0",
        "00",
        " 1",
        "1 ",
        "1.0",
        "1e3",
        "0x10",
        "--1",
        "a",
        "1a",
        "9223372036854775808",
        "-9223372036854775809",
        "18446744073709551616",
        "100000000000000000000000000000",
    ] {
        assert_eq!(parse_integer(text.as_bytes()), None, "{text:?}");
    }
}
