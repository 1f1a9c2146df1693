//! How often each thing may happen: what makes the model finite.

use std::str::FromStr;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum May {
    /// Keys that are asked for.
    Keys,
    /// Requests that a node takes in, renewals and repeated ones included.
    Requests,
    Ticks,
    /// Ticks that a clock gains or loses. More than [`MARGIN`](crate::MARGIN) is too much.
    Drifts,
    Elections,
    /// Crashes, each with the return.
    Restarts,
    Snapshots,
    /// Acknowledgements, replies and ends of turns that do not come at once.
    BeLate,
    /// Batches, markers and requests that arrive once more.
    Doubles,
    /// Batches that Raft refuses.
    Refusals,
}

/// The names of all that may happen, in the order of [`May`].
pub const NAMES: [&str; 10] = [
    "keys",
    "requests",
    "ticks",
    "drifts",
    "elections",
    "restarts",
    "snapshots",
    "late",
    "doubles",
    "refusals",
];

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Bounds([u8; NAMES.len()]);

impl Bounds {
    pub fn of(&self, may: May) -> u8 {
        self.0[may as usize]
    }

    pub fn has(&self, may: May) -> bool {
        self.of(may) > 0
    }

    pub fn take(&mut self, may: May) {
        self.0[may as usize] -= 1;
    }

    pub fn keys(&self) -> usize {
        self.of(May::Keys).into()
    }
}

/// Names and numbers, as in `requests 2 elections 1`. What is not named does not happen; there is
/// one key at least.
impl FromStr for Bounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Bounds, String> {
        let mut bounds = Bounds::default();
        let mut words = text.split_whitespace();
        while let Some(name) = words.next() {
            let at = NAMES.iter().position(|known| *known == name);
            let at = at.ok_or_else(|| format!("{name} is none of {}", NAMES.join(", ")))?;
            let number = words.next().and_then(|number| number.parse().ok());
            bounds.0[at] = number.ok_or_else(|| format!("say how many {name}, up to 255"))?;
        }
        let keys = bounds.keys().clamp(1, crate::KEYS);
        bounds.0[May::Keys as usize] = keys as u8;
        Ok(bounds)
    }
}
