use super::*;

/// Turns in the order of their fences: which client, and when it asked, in milliseconds.
fn among(turns: &[(usize, Time)]) -> Overtaking {
    let turns = (1..).zip(turns).map(|(fence, &(client, asked_ms))| Turn {
        client,
        asked: asked_ms * 1_000,
        granted: 10_000_000 + fence,
        fence,
    });
    let mut turns: Vec<Turn> = turns.collect();
    turns.reverse();
    Overtaking::among(turns)
}

#[test]
fn a_line_in_its_order_has_no_overtaking() {
    assert_eq!(
        among(&[(0, 0), (1, 200), (0, 200), (1, 400)]),
        Overtaking::default()
    );
}

#[test]
fn waiters_that_came_at_once_have_no_order() {
    assert_eq!(among(&[(0, 100), (1, 0), (1, 50)]), Overtaking::default());
}

#[test]
fn one_that_jumps_the_line_overtakes_all_of_it() {
    let found = among(&[(0, 900), (0, 0), (1, 200), (1, 400)]);
    let expected = Overtaking {
        overtaken: 3,
        by_own_client: 1,
        overtakers: 1,
    };
    assert_eq!(found, expected);
}

#[test]
fn one_that_comes_back_late_is_overtaken_once() {
    let found = among(&[(0, 200), (0, 400), (0, 600), (1, 0)]);
    let expected = Overtaking {
        overtaken: 1,
        by_own_client: 0,
        overtakers: 3,
    };
    assert_eq!(found, expected);
}
