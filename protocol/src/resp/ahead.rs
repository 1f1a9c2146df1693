//! The keys of commands that are still to be read, so that their cells can be prefetched.

use super::number::take_number;

/// The first argument of each command that `bytes` begin with: nearly always its key. A guess: it
/// ends at the first command that is incomplete, inline or malformed, and leaves the rest to
/// [`super::Reader`].
pub fn first_arguments(mut bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        loop {
            let mut found = None;
            let count = take_number(b'*', &mut bytes)?;
            for position in 0..count {
                let length = take_number(b'$', &mut bytes)?;
                let (argument, rest) = bytes.split_at_checked(length)?;
                bytes = rest.strip_prefix(b"\r\n")?;
                if position == 1 {
                    found = Some(argument);
                }
            }
            if found.is_some() {
                return found;
            }
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(bytes: &[u8]) -> Vec<&[u8]> {
        first_arguments(bytes).collect()
    }

    #[test]
    fn keys_are_found_and_commands_without_one_passed_over() {
        let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n*0\r\n\
            *4\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\nv\r\n$2\r\nNX\r\n";
        assert_eq!(keys(bytes), [&b"a"[..], b""]);
    }

    #[test]
    fn whatever_is_not_whole_and_plain_ends_it() {
        for rest in [
            &b""[..],
            b"*",
            b"*2\r\n$3\r\nGET\r\n$1\r\n",
            b"*2\r\n$3\r\nGET\r\n$1\r\nab\r\n",
            b"GET b\r\n",
            b"$2\r\nGET\r\n$1\r\nb\r\n",
            b"*2\r\n$-1\r\n",
            b"*99999999999999999999\r\n",
            b"*99999999\r\n",
            b"\r\n",
        ] {
            let bytes = [b"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", rest].concat();
            assert_eq!(keys(&bytes), [b"a"], "{}", rest.escape_ascii());
        }
    }
}
