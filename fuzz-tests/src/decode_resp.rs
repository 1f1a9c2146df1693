//! The Redis port's view: any stream of bytes, whole and cut in two, reads as the same commands and
//! keeps its bounds.

use protocol::resp::limits::{COMMAND_BYTES_MAX, STRICT_ARGS_MAX, STRICT_BULK_BYTES_MAX};
use protocol::resp::{ProtocolError, Reader, first_arguments};

/// See the module. The first byte says whether the reader is strict, the next two where the stream
/// is cut.
pub fn run(data: &[u8]) {
    let Some(([strict, cut_low, cut_high], stream)) = data.split_first_chunk() else {
        return;
    };
    let strict = strict & 1 == 1;
    let cut = usize::from(u16::from_le_bytes([*cut_low, *cut_high])).min(stream.len());
    let whole = read_all(strict, stream, &[stream.len()]);
    let pieces = read_all(strict, stream, &[cut, stream.len()]);
    assert_eq!(whole, pieces);
    // Reading ahead sees nothing that reading does not. A stranger's commands may end before.
    if !strict {
        let keys = whole.0.iter().filter_map(|command| command.get(1));
        assert!(
            first_arguments(stream)
                .zip(keys)
                .all(|(ahead, key)| ahead == key)
        );
    }
}

/// All commands, and why reading stopped before the end.
fn read_all(
    strict: bool,
    stream: &[u8],
    ends: &[usize],
) -> (Vec<Vec<Vec<u8>>>, Option<ProtocolError>) {
    let mut reader = Reader::new();
    reader.set_strict(strict);
    let mut commands = Vec::new();
    let mut start = 0;
    for &end in ends {
        loop {
            let unread = &stream[start..end];
            match reader.next(unread) {
                Ok(Some(used)) => {
                    assert!(0 < used && used <= unread.len() && used <= COMMAND_BYTES_MAX);
                    if strict && unread[0] == b'*' {
                        assert!(reader.len() <= STRICT_ARGS_MAX);
                        assert!(
                            reader
                                .args(unread)
                                .all(|arg| arg.len() <= STRICT_BULK_BYTES_MAX)
                        );
                    }
                    commands.push(reader.args(unread).map(<[u8]>::to_vec).collect());
                    start += used;
                }
                Ok(None) => {
                    assert!(unread.len() < COMMAND_BYTES_MAX);
                    break;
                }
                Err(error) => return (commands, Some(error)),
            }
        }
    }
    (commands, None)
}
