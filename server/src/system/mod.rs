//! What the server has from the operating system: clocks and threads, and what becomes of a
//! thread that panics.

pub(crate) mod clock;
pub(crate) mod panics;
pub(crate) mod standby;
pub(crate) mod wall_clock;
