//! The age of the oldest held lock. A lock that its holder forgot to release shows here first.
//!
//! Holds are not kept in order of age, since every grant would pay for that. Instead each scrape
//! reads a bounded part of the table. Up to a million keys that is all of it, and the answer is
//! exact. Beyond that a pass takes several scrapes, and the answer is the oldest hold that the last
//! whole pass and the present one have found and that still stands. A lock that has been held since
//! before the last pass began is never missed.

use engine::{Cursor, Engine, Hold, Host, Tick};

/// How many cells one scrape reads: some ten milliseconds of the HTTP thread, and of no core.
const CELLS_PER_LOOK: u32 = 1 << 20;

#[derive(Default)]
pub(crate) struct Oldest {
    from: Cursor,
    /// The oldest that this pass has found so far, and the one the last pass found.
    present: Option<Hold>,
    last: Option<Hold>,
}

impl Oldest {
    /// Goes on with the pass. Returns how long the oldest lock has been held; zero if none is.
    pub(crate) fn look<H: Host>(&mut self, engine: &Engine<H>, now: Tick) -> u64 {
        self.look_at(engine, CELLS_PER_LOOK, now)
    }

    fn look_at<H: Host>(&mut self, engine: &Engine<H>, cells_max: u32, now: Tick) -> u64 {
        let age_ms = |hold: Option<Hold>| hold.and_then(|hold| engine.held_ms(hold, now));
        let survey = engine.survey(self.from, cells_max, now);
        if let Some((hold, held_ms)) = survey.oldest
            && age_ms(self.present).is_none_or(|present_ms| held_ms > present_ms)
        {
            self.present = Some(hold);
        }
        match survey.next {
            Some(next) => self.from = next,
            None => {
                self.from = Cursor::default();
                self.last = self.present.take();
            }
        }
        age_ms(self.present).max(age_ms(self.last)).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::{Acquire, Alone, Key, Outcome, Seat, Settings};

    #[test]
    fn a_whole_look_is_exact_and_several_small_ones_get_there() {
        let engine = Engine::new(Settings::default(), Alone);
        let at = Tick::from_ms;
        let mut seat = Seat::new(engine.open_session(1_000_000, at(0)).unwrap());
        let mut grants = Vec::new();
        for number in 0..100_u64 {
            let name = number.to_le_bytes();
            let acquire = Acquire::exclusive(Key::new(&name).unwrap(), 1_000_000);
            match engine.acquire(&mut seat, &acquire, at(number)) {
                Outcome::Granted(grant) => grants.push((name, grant.fence)),
                other => panic!("{other:?}"),
            }
        }
        let mut whole = Oldest::default();
        assert_eq!(whole.look(&engine, at(1000)), 1000);
        let mut small = Oldest::default();
        for _ in 0..20 {
            small.look_at(&engine, 10, at(1000));
        }
        assert_eq!(small.look_at(&engine, 10, at(1000)), 1000);

        let (name, fence) = grants[0];
        let key = Key::new(&name).unwrap();
        engine.release(&mut seat, key, fence, at(1000));
        assert_eq!(
            whole.look(&engine, at(1000)),
            999,
            "what was given back does not count"
        );
        for (name, fence) in &grants[1..] {
            engine.release(&mut seat, Key::new(name).unwrap(), *fence, at(1000));
        }
        assert_eq!(whole.look(&engine, at(1000)), 0);
    }
}
