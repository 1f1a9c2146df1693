use super::*;

#[test]
fn zero_is_no_fence_and_fences_compare_as_numbers() {
    assert_eq!(Fence::new(0), None);
    assert_eq!(Fence::new(9).unwrap().to_string(), "9");
    assert_eq!(format!("{:?}", Fence::new(9).unwrap()), "#9");
    assert!(Fence::new(2) < Fence::new(10));
}

#[test]
fn no_grant_has_a_fence_of_zero_or_above_the_last() {
    assert_eq!(Fence::granted(0), None);
    assert_eq!(Fence::granted(1), Fence::new(1));
    assert_eq!(Fence::granted(Fence::MAX.get()), Some(Fence::MAX));
    assert_eq!(Fence::granted(Fence::MAX.get() + 1), None);
    assert_eq!(Fence::granted(u64::MAX), None);
}

#[test]
fn adding_stops_at_the_last_fence() {
    let last_but_two = Fence::from_number(Fence::MAX.get() - 2);
    assert_eq!(last_but_two.saturating_add(1).get(), Fence::MAX.get() - 1);
    for count in [2, 3, u64::MAX] {
        assert_eq!(last_but_two.saturating_add(count), Fence::MAX);
    }
}

#[test]
fn a_fence_goes_through_text_and_back() {
    for number in [1, 9, Fence::MAX.get(), u64::MAX] {
        let fence = Fence::new(number).unwrap();
        assert_eq!(fence.to_string().parse(), Ok(fence));
    }
    for text in [
        "",
        "0",
        "000",
        "-1",
        "+1",
        " 1",
        "1 ",
        "0x1",
        "1.0",
        "18446744073709551616",
    ] {
        assert_eq!(text.parse::<Fence>(), Err(NoFence), "{text:?}");
    }
    assert!(NoFence.to_string().contains("whole numbers from 1"));
}

#[test]
fn a_fence_goes_through_a_number_and_back() {
    assert_eq!(Fence::try_from(0), Err(NoFence));
    assert_eq!(u64::from(Fence::try_from(7).unwrap()), 7);
}

#[cfg(feature = "serde")]
#[test]
fn a_fence_is_a_number_in_json() {
    let fence = Fence::new(42).unwrap();
    assert_eq!(serde_json::to_string(&fence).unwrap(), "42");
    assert_eq!(serde_json::from_str::<Fence>("42").unwrap(), fence);
    for text in ["0", "-1", "4.2", "\"42\"", "null"] {
        serde_json::from_str::<Fence>(text).unwrap_err();
    }
    let missing: Option<Fence> = serde_json::from_str("null").unwrap();
    assert_eq!(missing, None);
}
