//! Hash slots, as Redis Cluster counts them. Here all of them belong to the leader; clients in
//! cluster mode still compute them, and `-MOVED` names one.

/// How many slots there are.
pub(crate) const SLOTS: u16 = 16_384;

/// The slot of a key: its CRC16, or that of what stands between the first `{` and the `}` behind
/// it, unless that is nothing.
pub(crate) fn of(key: &[u8]) -> u16 {
    crc16(tag(key)) % SLOTS
}

fn tag(key: &[u8]) -> &[u8] {
    let Some(open) = key.iter().position(|byte| *byte == b'{') else {
        return key;
    };
    let inside = &key[open + 1..];
    match inside.iter().position(|byte| *byte == b'}') {
        None | Some(0) => key,
        Some(length) => &inside[..length],
    }
}

/// CRC16 in its XMODEM flavour: polynomial 0x1021, begins with zero, nothing reflected.
fn crc16(bytes: &[u8]) -> u16 {
    const POLYNOMIAL: u16 = 0x1021;
    let mut crc = 0;
    for byte in bytes {
        crc ^= u16::from(*byte) << 8;
        for _ in 0..8 {
            let carries = crc & 0x8000 != 0;
            crc <<= 1;
            if carries {
                crc ^= POLYNOMIAL;
            }
        }
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_is_the_one_that_redis_names() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
    }

    /// The slots are those that a Redis 7.0.15 in cluster mode answered.
    #[test]
    fn slots_are_those_of_redis() {
        for (key, slot) in [
            ("", 0),
            ("foo", 12_182),
            ("bar", 5_061),
            ("somekey", 11_058),
            ("foo{hash_tag}", 2_515),
            ("bar{hash_tag}", 2_515),
            ("123456789", 12_739),
        ] {
            assert_eq!(of(key.as_bytes()), slot, "{key}");
        }
    }

    #[test]
    fn only_what_stands_in_the_first_braces_counts() {
        assert_eq!(of(b"{user1000}.following"), of(b"user1000"));
        assert_eq!(of(b"foo{bar}{zap}"), of(b"bar"));
        assert_eq!(of(b"foo{{bar}}zap"), of(b"{bar"));
        assert_eq!(tag(b"foo{}{bar}"), b"foo{}{bar}");
        assert_eq!(tag(b"foo{bar"), b"foo{bar");
    }
}
