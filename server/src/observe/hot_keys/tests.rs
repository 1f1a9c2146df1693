use super::*;

fn at(ms: u64) -> Tick {
    Tick::from_ms(ms)
}

fn names(top: &[HotKey]) -> Vec<&[u8]> {
    top.iter().map(|hot| &*hot.key).collect()
}

#[test]
fn keys_of_all_cores_are_added_up_and_put_in_order() {
    let hot = HotKeys::new(2);
    for _ in 0..30 {
        hot.note(0, b"a", at(5_000));
        hot.note(1, b"a", at(5_000));
        hot.note(1, b"b", at(5_000));
    }
    hot.note(0, b"c", at(5_000));
    let top = hot.top(2, at(5_000));
    assert_eq!(names(&top), [b"a", b"b"]);
    // Half a period after a halving, one and a half periods count.
    assert_eq!(top[0].per_second, 60.0 / 15.0);
    assert_eq!(top[0].too_high_by, 0.0);
    assert_eq!(hot.top(10, at(5_000)).len(), 3);
}

#[test]
fn a_steady_rate_is_shown_as_it_is_and_what_is_over_fades() {
    let hot = HotKeys::new(1);
    // A hundred a second, for ten minutes.
    for ms in (0..600_000).step_by(10) {
        hot.note(0, b"k", at(ms));
        if ms % 1_000 == 0 && ms > 200_000 {
            let rate = hot.top(1, at(ms))[0].per_second;
            assert!((99.0..=101.0).contains(&rate), "{rate} at {ms}");
        }
    }
    let faded = hot.top(1, at(650_000))[0].per_second;
    assert!((1.0..5.0).contains(&faded), "{faded}");
    assert!(hot.top(1, at(900_000)).is_empty());
    // Years after, all the same.
    assert!(hot.top(1, at(200_000_000_000)).is_empty());
}

#[test]
fn a_key_with_more_than_its_share_is_found_among_any_number_of_others() {
    let hot = HotKeys::new(1);
    for number in 0..100_000_u32 {
        hot.note(0, &number.to_le_bytes(), at(1));
        if number % 20 == 0 {
            hot.note(0, b"hot", at(1));
        }
    }
    let top = hot.top(1, at(1));
    assert_eq!(names(&top), [b"hot"]);
    let seconds = PERIOD_MS as f64 / 1e3;
    let (shown, error) = (top[0].per_second, top[0].too_high_by);
    let truth = 5_000.0 / seconds;
    assert!(
        shown >= truth * 0.999 && shown - error <= truth * 1.001,
        "{top:?}"
    );
    assert!(hot.cores[0].lock().entries.len() <= KEPT_MAX);
}

#[test]
fn keys_that_share_a_hash_are_told_apart() {
    let mut kept = Kept::default();
    kept.note(7, b"a", at(1));
    kept.note(7, b"b", at(1));
    assert_eq!(kept.entries.len(), 2);
    assert!(kept.entries.iter().all(|entry| entry.count == 1));
}
