use super::*;
use bytes::BytesMut;

fn stat(name: &str, value: u64) -> StatEntry<'_> {
    StatEntry {
        name: StatName::new(name).unwrap(),
        value,
    }
}

#[test]
fn list_read_back_is_the_list_written() {
    let entries = [stat("grants_total", 7), stat("waiters", 0)];
    let records = Records::new(&entries).unwrap();
    let mut out = BytesMut::new();
    records.write(&mut Writer::new(&mut out));

    let mut reader = Reader::new(&out);
    let read = Records::<StatEntry<'_>>::read(&mut reader).unwrap();
    assert!(reader.rest().is_empty());
    assert_eq!(read, records);
    assert_eq!(read.len(), 2);
    assert!(read.into_iter().eq(entries));
}

#[test]
fn fields_added_to_a_record_later_are_skipped() {
    // One record: value 7, name "a", and an optional field 60, which is unknown.
    let bytes = [
        1, 0, 15, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'a', 60, 1, 0, 9, 0xee,
    ];
    let mut reader = Reader::new(&bytes);
    let read = Records::<StatEntry<'_>>::read(&mut reader).unwrap();
    assert!(read.into_iter().eq([stat("a", 7)]));
    assert_eq!(reader.rest(), [0xee], "what follows the list is untouched");
}

#[test]
fn lists_are_bounded_both_ways() {
    let many = vec![stat("a", 1); usize::from(limits::STATS_MAX) + 1];
    assert_eq!(
        Records::new(&many).unwrap_err().to_string(),
        "there are 257 statistics, at most 256 are allowed"
    );
    assert!(Records::<StatEntry<'_>>::read(&mut Reader::new(&[0xff, 0xff])).is_err());
}

#[test]
fn damaged_record_refuses_the_whole_list() {
    // Two records announced, the second is cut off.
    let bytes = [2, 0, 11, 0, 7, 0, 0, 0, 0, 0, 0, 0, 1, 0, b'a', 11, 0, 7, 0];
    assert!(Records::<StatEntry<'_>>::read(&mut Reader::new(&bytes)).is_err());
}

#[test]
fn declared_sizes_are_the_real_ones() {
    let key = [0xff; limits::KEY_BYTES_MAX];
    let metadata = [0xff; limits::METADATA_BYTES_MAX];
    let text = "x".repeat(limits::STAT_NAME_BYTES_MAX);
    let holder = Holder {
        fence: Fence::new(u64::MAX).unwrap(),
        session_id: SessionId::new(u64::MAX),
        held_ms: u64::MAX,
        remaining_ms: u32::MAX,
        ends_with_session: true,
        mode: Mode::Shared,
        is_session_bound: true,
        is_you: true,
        hold_count: u32::MAX,
        client_name: ClientName::clipped(&text),
        metadata: Metadata::new(&metadata).unwrap(),
    };
    let lock = LockEntry {
        key: Key::new(&key).unwrap(),
        contention: Contention {
            holder_count: u32::MAX,
            queue_length: u32::MAX,
            holder: Some(holder),
            recovering_ms: None,
        },
        last_fence: Fence::new(u64::MAX),
    };
    let session = SessionEntry {
        session_id: SessionId::new(1),
        age_ms: 2,
        ttl_ms: 3,
        remaining_ms: 4,
        connection_count: 5,
        lock_count: 6,
        waiter_count: 7,
        client_name: ClientName::clipped(&text),
        address: Address::clipped(&text),
    };
    assert_size(holder);
    assert_size(lock);
    assert_size(session);
    assert_size(stat(&text, u64::MAX));
}

fn assert_size<'a, T: Record<'a>>(longest: T) {
    let mut out = BytesMut::new();
    Writer::new(&mut out).sized(|writer| longest.write(writer));
    assert_eq!(out.len(), T::BYTES_MAX, "{}", T::NAME);
}
