use super::*;
use proptest::prelude::*;

/// How many bytes a command took, and its arguments.
type Command = (usize, Vec<Vec<u8>>);

fn read(bytes: &[u8]) -> Result<Option<Command>, ProtocolError> {
    let mut reader = Reader::new();
    let used = reader.next(bytes)?;
    Ok(used.map(|used| (used, reader.args(bytes).map(<[u8]>::to_vec).collect())))
}

#[track_caller]
fn assert_refused(bytes: &[u8], error: ProtocolError, words: &str) {
    assert_eq!(read(bytes), Err(error));
    assert_eq!(error.to_string(), format!("Protocol error: {words}"));
}

#[test]
fn commands_come_off_one_by_one() {
    let bytes = b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\nPING\r\n*1\r\n$4\r\nQUIT\r\n*1\r\n$4\r\nQU";
    let mut reader = Reader::new();
    let mut unread = &bytes[..];
    let mut commands = Vec::new();
    while let Some(used) = reader.next(unread).unwrap() {
        commands.push(reader.args(unread).map(<[u8]>::to_vec).collect::<Vec<_>>());
        unread = &unread[used..];
    }
    assert_eq!(commands.len(), 3);
    assert_eq!(commands[0], [&b"GET"[..], b"k"]);
    assert_eq!(commands[1], [b"PING"]);
    assert_eq!(commands[2], [b"QUIT"]);
    assert_eq!(unread, b"*1\r\n$4\r\nQU", "an incomplete command is left");
}

#[test]
fn arguments_may_hold_any_bytes_and_none() {
    let bytes = b"*3\r\n$0\r\n\r\n$4\r\n\r\n*1\r\n$1\r\n\0\r\n";
    let (used, args) = read(bytes).unwrap().unwrap();
    assert_eq!(used, bytes.len());
    assert_eq!(args, [&b""[..], b"\r\n*1", b"\0"]);
}

#[test]
fn nothing_to_do_has_no_arguments() {
    for bytes in [
        &b"\r\n"[..],
        b"\n",
        b"   \r\n",
        b"*0\r\n",
        b"*-1\r\n",
        b"*-7\r\n",
    ] {
        let expected = Some((bytes.len(), Vec::new()));
        assert_eq!(read(bytes), Ok(expected), "{}", bytes.escape_ascii());
    }
}

#[test]
fn inline_lines_end_with_or_without_a_carriage_return() {
    let expected = vec![b"SET".to_vec(), b"a b".to_vec()];
    assert_eq!(read(b"SET 'a b'\nx"), Ok(Some((10, expected.clone()))));
    assert_eq!(read(b"SET 'a b'\r\nx"), Ok(Some((11, expected))));
}

#[test]
fn every_beginning_of_a_command_needs_more() {
    for whole in [
        &b"*2\r\n$3\r\nGET\r\n$10\r\n0123456789\r\n"[..],
        b"GET 'a b'\r\n",
    ] {
        for bytes in 0..whole.len() {
            assert_eq!(read(&whole[..bytes]), Ok(None), "{bytes} bytes");
        }
    }
}

#[test]
fn a_reader_that_was_refused_begins_anew() {
    let mut reader = Reader::new();
    assert!(reader.next(b"*1\r\n$x\r\n").is_err());
    assert_eq!(reader.next(b"PING\r\n"), Ok(Some(6)));
    assert!(reader.next(b"'\r\n").is_err());
    assert_eq!(reader.next(b"*1\r\n$4\r\nPING\r\n"), Ok(Some(14)));
    assert_eq!(reader.arg(b"*1\r\n$4\r\nPING\r\n", 0), b"PING");
}

#[test]
fn counts_that_are_none_are_refused() {
    for bytes in [
        &b"*\r\n"[..],
        b"*x\r\n",
        b"* 1\r\n",
        b"*+1\r\n",
        b"*01\r\n",
        b"*1048577\r\n",
        b"*4294967297\r\n",
        b"*9223372036854775808\r\n",
    ] {
        assert_refused(
            bytes,
            ProtocolError::MultibulkLength,
            "invalid multibulk length",
        );
    }
    assert_eq!(read(b"*1048576\r\n"), Ok(None));
}

#[test]
fn lengths_that_are_none_are_refused() {
    for bytes in [
        &b"*1\r\n$\r\n"[..],
        b"*1\r\n$-1\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$65537\r\n",
        b"*1\r\n$18446744073709551615\r\n",
        b"*2\r\n$1\r\nx\r\n$-2\r\n",
    ] {
        assert_refused(bytes, ProtocolError::BulkLength, "invalid bulk length");
    }
    assert_eq!(read(b"*1\r\n$65536\r\n"), Ok(None));
}

#[test]
fn an_argument_without_its_length_is_refused() {
    let got = |got| ProtocolError::ExpectedBulk { got };
    assert_refused(b"*1\r\nPING\r\n", got(b'P'), "expected '$', got 'P'");
    assert_refused(b"*1\r\n*1\r\n", got(b'*'), "expected '$', got '*'");
    assert_refused(b"*1\r\n\r\n", got(b'\r'), "expected '$', got '\r'");
    // A length that was too short: the next thing is the rest of its argument.
    let bytes = b"*2\r\n$1\r\nabcd\r\n";
    assert_refused(bytes, got(b'd'), "expected '$', got 'd'");
}

#[test]
fn lines_without_an_end_are_refused() {
    let endless = vec![b'1'; LINE_BYTES_MAX + 1];
    let with = |front: &[u8]| [front, &endless].concat();
    assert_refused(
        &with(b"*"),
        ProtocolError::MultibulkLineTooLong,
        "too big mbulk count string",
    );
    assert_refused(
        &with(b"*1\r\n$"),
        ProtocolError::BulkLineTooLong,
        "too big bulk count string",
    );
    assert_refused(
        &with(b""),
        ProtocolError::InlineTooLong,
        "too big inline request",
    );
    assert_eq!(read(&endless[1..]), Ok(None), "it may still end here");
}

#[test]
fn quotes_left_open_are_refused() {
    let error = ProtocolError::UnbalancedQuotes;
    assert_refused(b"GET 'k\r\n", error, "unbalanced quotes in request");
}

#[test]
fn strangers_are_held_to_less() {
    let mut reader = Reader::new();
    let cases = [
        (
            &b"*11\r\n"[..],
            ProtocolError::UnauthenticatedMultibulkLength,
        ),
        (
            b"*10\r\n$16385\r\n",
            ProtocolError::UnauthenticatedBulkLength,
        ),
    ];
    for (bytes, error) in cases {
        reader.set_strict(true);
        assert_eq!(reader.next(bytes), Err(error));
        reader.set_strict(false);
        assert_eq!(reader.next(bytes), Ok(None));
        reader = Reader::new();
    }
    reader.set_strict(true);
    assert_eq!(reader.next(b"*10\r\n$16384\r\n"), Ok(None));
}

/// The most arguments that fit, all of them empty: refused at the bound, and the room for them
/// given back.
#[test]
fn a_command_has_a_bound_as_a_whole() {
    let mut bytes = format!("*{ARGS_MAX}\r\n").into_bytes();
    while bytes.len() < COMMAND_BYTES_MAX {
        bytes.extend(b"$0\r\n\r\n");
    }
    let mut reader = Reader::new();
    assert_eq!(reader.next(&bytes), Err(ProtocolError::CommandTooLong));
    assert!(reader.len() < COMMAND_BYTES_MAX / 6);
    assert_eq!(reader.next(b"PING\r\n"), Ok(Some(6)));
    assert!(reader.args.capacity() <= ARGS_KEPT_MAX);

    // Large arguments: refused by what the last one announces, before it arrives.
    let mut bytes = b"*9\r\n".to_vec();
    for _ in 0..7 {
        bytes.extend(format!("${BULK_BYTES_MAX}\r\n").bytes());
        bytes.extend(vec![b'x'; BULK_BYTES_MAX]);
        bytes.extend(b"\r\n");
    }
    assert_eq!(reader.next(&bytes), Ok(None));
    bytes.extend(format!("${BULK_BYTES_MAX}\r\n").bytes());
    assert_eq!(reader.next(&bytes), Err(ProtocolError::CommandTooLong));
}

/// What is all there is read in one go; its bounds are the same as on the way in.
#[test]
fn whole_commands_have_the_same_bounds() {
    let command = |bulks: &[usize]| {
        let mut bytes = format!("*{}\r\n", bulks.len()).into_bytes();
        for bulk_bytes in bulks {
            bytes.extend(format!("${bulk_bytes}\r\n").bytes());
            bytes.extend(vec![b'x'; *bulk_bytes]);
            bytes.extend(b"\r\n");
        }
        bytes
    };
    let largest = command(&[BULK_BYTES_MAX]);
    assert_eq!(read(&largest).unwrap().unwrap().0, largest.len());
    let refused = read(&command(&[BULK_BYTES_MAX + 1]));
    assert_eq!(refused, Err(ProtocolError::BulkLength));

    // Seven of the largest, and one that just fits, or just does not.
    let mut bulks = [BULK_BYTES_MAX; 8];
    bulks[7] = 0;
    bulks[7] = COMMAND_BYTES_MAX - command(&bulks).len() - "65463".len() + "0".len();
    let longest = command(&bulks);
    assert_eq!(longest.len(), COMMAND_BYTES_MAX);
    assert_eq!(read(&longest).unwrap().unwrap().0, COMMAND_BYTES_MAX);
    bulks[7] += 1;
    assert_eq!(read(&command(&bulks)), Err(ProtocolError::CommandTooLong));

    let mut stranger = Reader::new();
    stranger.set_strict(true);
    let refused = stranger.next(&command(&[STRICT_BULK_BYTES_MAX + 1]));
    assert_eq!(refused, Err(ProtocolError::UnauthenticatedBulkLength));
}

#[test]
fn a_long_line_leaves_no_room_behind() {
    let mut bytes = vec![b'x'; LINE_BYTES_MAX - 2];
    bytes.extend(b"\r\n");
    let mut reader = Reader::new();
    assert_eq!(reader.next(&bytes), Ok(Some(bytes.len())));
    assert_eq!(reader.arg(&bytes, 0).len(), LINE_BYTES_MAX - 2);
    assert_eq!(reader.next(b""), Ok(None));
    assert!(reader.unquoted.capacity() <= INLINE_BYTES_KEPT_MAX);
}

/// Bytes that are nearly a command: parts of one, in order, some of them spoilt.
fn nearly_a_command() -> impl Strategy<Value = Vec<u8>> {
    let line = |mark: &'static str| {
        let number = prop_oneof![
            8 => (0_usize..12).prop_map(|number| number.to_string()),
            1 => prop_oneof!["-1", "00", "07", "9999999", "123456789", "", "x", "65537"],
        ];
        let end = prop_oneof![20 => Just("\r\n"), 1 => Just("\n"), 1 => Just("\r")];
        (number, end).prop_map(move |(number, end)| format!("{mark}{number}{end}"))
    };
    let argument = (0_usize..10, 0_usize..24).prop_flat_map(move |(length, spoilt)| {
        let end = if spoilt == 0 { "xy" } else { "\r\n" };
        let head = match spoilt {
            1 => line("$").boxed(),
            _ => Just(format!("${length}\r\n")).boxed(),
        };
        let bytes = proptest::collection::vec(any::<u8>(), length);
        (head, bytes)
            .prop_map(move |(head, bytes)| [head.as_bytes(), &bytes, end.as_bytes()].concat())
    });
    let arguments = proptest::collection::vec(argument, 0..12);
    (any::<bool>(), line("*"), arguments).prop_map(|(is_true, count, arguments)| {
        let count = match is_true {
            true => format!("*{}\r\n", arguments.len()),
            false => count,
        };
        [count.into_bytes(), arguments.concat()].concat()
    })
}

proptest! {
    #[test]
    fn in_one_go_or_byte_by_byte_a_command_is_the_same(bytes in nearly_a_command()) {
        let mut reader = Reader::new();
        let mut in_steps = Ok(None);
        for end in 0..=bytes.len() {
            in_steps = reader.next(&bytes[..end]);
            if in_steps != Ok(None) {
                break;
            }
        }
        let in_steps = in_steps.map(|used| {
            used.map(|used| (used, reader.args(&bytes).map(<[u8]>::to_vec).collect()))
        });
        prop_assert_eq!(read(&bytes), in_steps);
    }
}
