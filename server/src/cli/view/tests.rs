use super::*;

fn holder(client_name: &str, is_shared: bool) -> Holder {
    Holder {
        fence: 1_836_311_903,
        session_id: 7,
        client_name: client_name.to_owned(),
        is_shared,
        is_session_bound: false,
        hold_count: 1,
        held_ms: 12_400,
        remaining_ms: Some(200_000),
        ends_with_session: false,
        metadata: Metadata::new(b"invoice run"),
    }
}

fn lock(key: &[u8], holders: Vec<Holder>, queue_length: u32) -> Lock {
    Lock {
        key: Key::new(key),
        last_fence: 1_836_311_903,
        holder_count: holders.len() as u32,
        queue_length,
        holders,
        recovering_ms: None,
    }
}

#[test]
fn one_lock_is_told_in_lines() {
    let lock = lock(b"orders/42", vec![holder("billing", false)], 3);
    assert_eq!(
        lock.to_text(),
        "key       orders/42\n\
         state     held\n\
         queue     3 waiting\n\
         holder    billing, session 7\n\
         fence     1836311903\n\
         held for  12.4s\n\
         lease     3m 20s left\n\
         note      invoice run\n"
    );
}

#[test]
fn the_end_that_is_shown_is_the_first_and_says_whose_it_is() {
    let lease = |remaining_ms, ends_with_session, is_session_bound| {
        let holder = Holder {
            remaining_ms,
            ends_with_session,
            is_session_bound,
            ..holder("a", false)
        };
        (holder.lease(), holder.describe())
    };
    let (short, long) = lease(Some(9_300), true, false);
    assert_eq!(short, "9.3s left: its session ends before its own lease");
    assert!(
        long.contains("for 9.3s more unless its session is kept alive"),
        "{long}"
    );
    let (short, _) = lease(Some(9_300), true, true);
    assert_eq!(short, "9.3s left, with its session");
    // SETNX of the Redis port: it was shown with 49d 17h, all that 32 bits can say.
    let (short, long) = lease(None, false, false);
    assert_eq!(short, "no end");
    assert!(long.contains("for 12.4s, without an end"), "{long}");
    let cut_ms = whole_ms(REMAINING_MAX);
    assert_eq!(lease(Some(cut_ms), false, false).0, "over 49d 17h left");
}

#[test]
fn a_free_key_is_called_free() {
    assert_eq!(lock(b"k", vec![], 0).to_text(), "key    k\nstate  free\n");
}

#[test]
fn a_key_that_no_holder_has_claimed_yet_is_not_called_free() {
    let mut lock = lock(b"k", vec![], 0);
    lock.recovering_ms = Some(2_500);
    assert_eq!(
        lock.to_text(),
        "key     k\n\
         state   not known, it may be held\n\
         server  recovering from a restart for 2.5s more: until then it does not know all holders and grants nothing new\n"
    );
}

#[test]
fn many_holders_are_counted_even_where_they_are_not_named() {
    let mut lock = lock(b"k", vec![holder("a", true), holder("", true)], 0);
    lock.holder_count = 70;
    let text = lock.to_text();
    assert!(text.contains("state  shared by 70\n"), "{text}");
    assert!(text.ends_with("and 68 holders more\n"), "{text}");
    let table = Lock::table(&[lock]);
    assert!(table.contains("a +69"), "{table}");
}

#[test]
fn locks_are_listed_a_line_each() {
    let locks = [
        lock(b"orders/42", vec![holder("billing", false)], 3),
        lock(b"\xff\n", vec![], 1),
    ];
    assert_eq!(
        Lock::table(&locks),
        "KEY        HOLDER        FENCE   HELD    LEFT  QUEUE  NOTE\n\
         orders/42  billing  1836311903  12.4s  3m 20s      3  invoice run\n\
         \\xff\\n     -                 -      -       -      1\n"
    );
}

#[test]
fn json_keeps_the_bytes_of_a_key_that_is_no_text() {
    let json = serde_json::to_value(lock(b"a\xff", vec![], 0)).unwrap();
    assert_eq!(json["key"], "a\\xff");
    assert_eq!(json["key_hex"], "61ff");
    let json = serde_json::to_value(lock("ü\n".as_bytes(), vec![], 0)).unwrap();
    assert_eq!(json["key"], "ü\n");
    assert!(json.get("key_hex").is_none());
}
