//! Commands of Redis clients: what was sent is read, wherever the network cuts it.

use crate::allocations::counted;
use crate::config;
use bytes::BytesMut;
use proptest::collection::vec;
use proptest::prelude::*;
use protocol::resp::limits::COMMAND_BYTES_MAX;
use protocol::resp::{ProtocolError, Reader, Version, Writer};

type Command = Vec<Vec<u8>>;

/// As clients send it.
fn encode(command: &Command) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", command.len()).into_bytes();
    for arg in command {
        bytes.extend(format!("${}\r\n", arg.len()).bytes());
        bytes.extend(arg);
        bytes.extend(b"\r\n");
    }
    bytes
}

/// As a person could type it: every byte escaped.
fn encode_inline(command: &Command) -> Vec<u8> {
    let mut line = Vec::new();
    for arg in command {
        line.extend(b" \"");
        for byte in arg {
            line.extend(format!("\\x{byte:02x}").bytes());
        }
        line.push(b'"');
    }
    line.extend(b"\r\n");
    line
}

/// All commands of a stream that arrives in pieces, which end at `cuts`.
fn read_all(stream: &[u8], cuts: &[usize]) -> Result<Vec<Command>, ProtocolError> {
    let mut reader = Reader::new();
    let mut commands = Vec::new();
    let mut start = 0;
    for end in cuts.iter().copied().chain([stream.len()]) {
        while let Some(used) = reader.next(&stream[start..end])? {
            let front = &stream[start..end];
            commands.push(reader.args(front).map(<[u8]>::to_vec).collect());
            assert_eq!(commands.last().map(Vec::len), Some(reader.len()));
            start += used;
        }
        assert!(end - start < COMMAND_BYTES_MAX);
    }
    Ok(commands)
}

fn commands() -> impl Strategy<Value = Vec<(bool, Command)>> {
    let arg = prop_oneof![
        vec(any::<u8>(), 0..20),
        vec(any::<u8>(), 0..300),
        // What the format itself is made of.
        vec(prop::sample::select(b"*$\r\n019-'\"\\x ".to_vec()), 0..12),
    ];
    vec((any::<bool>(), vec(arg, 1..8)), 1..6)
}

#[test]
fn a_reader_and_a_writer_in_use_allocate_nothing() {
    let set = ["SET", "k", "v", "NX", "PX", "30000"].map(|arg| arg.as_bytes().to_vec());
    let bytes = encode(&set.to_vec());
    let mut reader = Reader::new();
    let mut out = BytesMut::with_capacity(4096);
    let mut round = || {
        let used = reader.next(&bytes).unwrap().unwrap();
        assert_eq!(used, bytes.len());
        let mut writer = Writer::new(&mut out, Version::V3);
        writer.array(reader.len());
        for arg in reader.args(&bytes) {
            writer.bulk(arg);
        }
        writer.integer(i64::MIN);
        writer.double(1.5);
        writer.error("ERR a\r\nb");
    };
    round();
    assert_eq!(counted(round).1, 0);
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn commands_survive_any_cut(
        commands in commands(),
        cuts in vec(any::<prop::sample::Index>(), 0..12),
    ) {
        let mut stream = Vec::new();
        for (is_inline, command) in &commands {
            stream.extend(if *is_inline { encode_inline(command) } else { encode(command) });
        }
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(stream.len())).collect();
        cuts.sort_unstable();
        let sent: Vec<Command> = commands.into_iter().map(|(_, command)| command).collect();
        prop_assert_eq!(read_all(&stream, &cuts), Ok(sent));
    }

    /// Where bytes are cut decides nothing, for bytes without sense either.
    #[test]
    fn garbage_reads_the_same_in_pieces(
        stream in vec(
            prop_oneof![any::<u8>(), prop::sample::select(b"*$\r\n12-'\"\\x ".to_vec())],
            0..200,
        ),
    ) {
        let every_byte: Vec<usize> = (0..stream.len()).collect();
        prop_assert_eq!(read_all(&stream, &every_byte), read_all(&stream, &[]));
    }
}
