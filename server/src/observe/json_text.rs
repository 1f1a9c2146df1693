//! Bytes that clients chose (keys, metadata) in JSON, which has only text.
//!
//! One rule everywhere, also on the command line: UTF-8 stands as it is (`key`). Other bytes are
//! escaped there, for people, and stand beside it in hex (`key_hex`), for programs.

use std::borrow::Cow;
use std::fmt::Write;

/// The text, and the hex if the text is not all there is to it.
pub(crate) fn text_and_hex(bytes: &[u8]) -> (Cow<'_, str>, Option<String>) {
    match std::str::from_utf8(bytes) {
        Ok(text) => (text.into(), None),
        Err(_) => (escaped(bytes).into(), Some(hex(bytes))),
    }
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        text.push_str(&chunk.valid().replace('\\', "\\\\"));
        for byte in chunk.invalid() {
            write!(text, "\\x{byte:02x}").expect("a string takes whatever is written to it");
        }
    }
    text
}

fn hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        write!(hex, "{byte:02x}").expect("a string takes whatever is written to it");
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::text_and_hex;

    #[test]
    fn text_stays_as_it_is_and_the_rest_is_escaped_with_its_hex() {
        assert_eq!(
            text_and_hex("größe\\1".as_bytes()),
            ("größe\\1".into(), None)
        );
        assert_eq!(text_and_hex(b""), ("".into(), None));
        let hex = Some("ff5c6b".to_owned());
        assert_eq!(text_and_hex(b"\xff\\k"), ("\\xff\\\\k".into(), hex));
    }
}
