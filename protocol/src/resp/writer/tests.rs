use super::*;

#[track_caller]
fn assert_written(write: impl Fn(&mut Writer<'_>), v2: &str, v3: &str) {
    for (version, expected) in [(Version::V2, v2), (Version::V3, v3)] {
        let mut out = BytesMut::from("before");
        write(&mut Writer::new(&mut out, version));
        assert_eq!(out, format!("before{expected}"));
    }
}

#[track_caller]
fn assert_same(write: impl Fn(&mut Writer<'_>), expected: &str) {
    assert_written(write, expected, expected);
}

#[test]
fn what_both_versions_share() {
    assert_same(|w| w.simple("OK"), "+OK\r\n");
    assert_same(|w| w.error("ERR no"), "-ERR no\r\n");
    assert_same(|w| w.integer(0), ":0\r\n");
    assert_same(|w| w.integer(i64::MIN), ":-9223372036854775808\r\n");
    assert_same(|w| w.bulk(b""), "$0\r\n\r\n");
    assert_same(|w| w.bulk(b"a\r\nb"), "$4\r\na\r\nb\r\n");
    assert_same(|w| w.array(0), "*0\r\n");
    assert_same(|w| w.array(12), "*12\r\n");
}

#[test]
fn what_the_older_version_lacks() {
    assert_written(|w| w.null(), "$-1\r\n", "_\r\n");
    assert_written(|w| w.null_array(), "*-1\r\n", "_\r\n");
    assert_written(|w| w.map(2), "*4\r\n", "%2\r\n");
    assert_written(|w| w.set(2), "*2\r\n", "~2\r\n");
    assert_written(|w| w.push(3), "*3\r\n", ">3\r\n");
    assert_written(|w| w.boolean(true), ":1\r\n", "#t\r\n");
    assert_written(|w| w.boolean(false), ":0\r\n", "#f\r\n");
    assert_written(|w| w.double(1.5), "$3\r\n1.5\r\n", ",1.5\r\n");
    assert_written(
        |w| w.verbatim_text("hé"),
        "$3\r\nhé\r\n",
        "=7\r\ntxt:hé\r\n",
    );
}

#[test]
fn an_error_stays_one_line_whatever_it_quotes() {
    assert_same(
        |w| w.error("ERR unknown command 'a\r\n+OK\r\n'"),
        "-ERR unknown command 'a  +OK  '\r\n",
    );
    assert_same(|w| w.simple("a\nb"), "+a b\r\n");
}

#[test]
fn every_double_fits_and_reads_back() {
    for (value, text) in [
        (0.0, "0"),
        (-0.0, "-0"),
        (3.0, "3"),
        (0.1, "0.1"),
        (-0.000012345678901234567, "-0.000012345678901234568"),
        (99_999_999_999_999_984.0, "99999999999999980"),
        (1e17, "1e17"),
        (f64::MIN, "-1.7976931348623157e308"),
        (-5e-324, "-5e-324"),
        (f64::INFINITY, "inf"),
        (f64::NEG_INFINITY, "-inf"),
        (f64::NAN, "nan"),
    ] {
        let mut out = BytesMut::new();
        Writer::new(&mut out, Version::V3).double(value);
        assert_eq!(out, format!(",{text}\r\n"));
        let read: f64 = text.parse().unwrap();
        assert_eq!(read.is_nan(), value.is_nan());
        assert!(read == value || value.is_nan());
    }
}
