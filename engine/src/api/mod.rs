//! What is asked and answered: requests, outcomes, the host that is told, the settings. Plain
//! values, no behaviour.

mod host;
mod outcome;
mod request;
mod settings;

pub use host::{Alone, GaveUp, Host, Loss, Lost};
pub use outcome::{
    Claimed, Downgrade, Grant, HOLDERS_PER_LOOK, Holder, Invalid, KeyState, Limit, NotHeld,
    Outcome, Progress, Release, Renewal,
};
pub use request::{Acquire, NOTE_BYTES_MAX, OldHold, TTL_MS_MAX, WAIT_MS_MAX};
pub use settings::Settings;
