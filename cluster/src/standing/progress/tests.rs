use super::*;
use openraft::type_config::TypeConfigExt;

/// Looks once a second, each with what the leader has told and what is applied, and gives whether
/// the node keeps up at each.
fn keeps_up(looks: &[(Option<u64>, Option<u64>)]) -> Vec<bool> {
    let begin = Types::now();
    let mut progress = Progress::default();
    let looks = (0..).zip(looks).map(|(second, (told, applied))| {
        progress.look(*told, *applied, begin + Duration::from_secs(second))
    });
    looks.collect()
}

#[test]
fn a_node_that_has_not_been_told_what_is_committed_has_not_caught_up() {
    assert_eq!(keeps_up(&[(None, None), (None, Some(7))]), [false, false]);
}

#[test]
fn a_node_has_caught_up_when_it_has_applied_what_was_committed() {
    let looks = [
        (Some(9), None),
        (Some(9), Some(8)),
        (Some(9), Some(9)),
        (Some(9), Some(9)),
    ];
    assert_eq!(keeps_up(&looks), [false, false, true, true]);
}

/// Clients work, and entries are always under way.
#[test]
fn a_node_that_is_a_little_behind_all_the_time_does_not_flap() {
    let looks: Vec<_> = (0..100)
        .map(|i| (Some(1_000 * (i + 1)), Some(1_000 * i + 1)))
        .collect();
    let kept = keeps_up(&looks);
    let first = kept.iter().position(|kept| *kept).expect("it catches up");
    assert!(first <= 2, "{first}");
    assert!(kept[first..].iter().all(|kept| *kept), "{kept:?}");
}

#[test]
fn a_node_that_stands_still_while_others_go_on_falls_behind_and_catches_up_again() {
    let mut looks = vec![(Some(9), Some(9))];
    looks.extend((0..8).map(|i| (Some(10 + i), Some(9))));
    // It reaches what it was to reach when it fell behind, which is too long ago by now.
    looks.push((Some(20), Some(11)));
    looks.push((Some(20), Some(20)));
    let kept = keeps_up(&looks);
    assert_eq!(kept[..5], [true; 5]);
    assert_eq!(kept[5..10], [false; 5]);
    assert!(kept[10]);
}
