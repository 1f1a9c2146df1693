//! How every story of `redlock` ends: B writes, then A, and the resource accepts or refuses.

use super::cluster::{Grant, KEY};
use crate::experiments::processes::store::{self, Resource};
use crate::experiments::processes::worker::count_of;
use serde::Serialize;
use std::net::SocketAddr;
use std::time::Instant;

/// What was seen of one story.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(super) struct Seen {
    pub(super) story: &'static str,
    pub(super) fence: bool,
    /// Whether B was granted the lock before A's lease had ended.
    pub(super) is_held_twice: bool,
    pub(super) first_fence: u64,
    pub(super) second_fence: u64,
    pub(super) first_status: u16,
    pub(super) second_status: u16,
    pub(super) accepted: u64,
    pub(super) count: u64,
}

impl Seen {
    pub(super) fn is_corrupted(&self) -> bool {
        self.count != self.accepted
    }

    /// Whether B wrote, and A, which came later with an older lock, did not.
    pub(super) fn is_refused(&self) -> bool {
        self.first_status == 409 && self.second_status == 200 && !self.is_corrupted()
    }

    pub(super) fn verdict(&self) -> &'static str {
        match self.is_corrupted() {
            true => "CORRUPTED",
            false => "intact",
        }
    }
}

/// The second half of every story: B writes, and then A writes what it had in mind.
pub(super) fn write_both(
    story: &'static str,
    is_fenced: bool,
    first: &Grant,
    second: &Grant,
    granted_at: Instant,
) -> Result<Seen, String> {
    let resource = Resource::start(is_fenced)?;
    let before = count_of(&store::read(resource.address, KEY)?.value);
    let second_status = write(resource.address, second, before + 1)?;
    let first_status = write(resource.address, first, before + 1)?;
    Ok(Seen {
        story,
        fence: is_fenced,
        is_held_twice: granted_at < first.valid_until,
        first_fence: first.fence,
        second_fence: second.fence,
        first_status,
        second_status,
        accepted: resource.counts()?.accepted,
        count: count_of(&store::read(resource.address, KEY)?.value),
    })
}

fn write(resource: SocketAddr, grant: &Grant, count: u64) -> Result<u16, String> {
    let answer = store::write(resource, KEY, grant.fence, &count.to_string());
    Ok(answer.map_err(|error| error.to_string())?.status)
}
