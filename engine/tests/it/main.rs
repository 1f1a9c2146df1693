//! The engine from outside, as its callers use it. One binary, one file per subject.

mod locks;
