//! Who held a key at one moment, from the lines about it.
//!
//! Lines come in the order of the file, which is nearly that of time. A hold is known by its fence:
//! one line begins it, one ends it. What a single line cannot say follows from others:
//!
//! - A line that ends a hold, or puts one back, says how long it was held. So a hold is known
//!   whose grant stood in a file that is gone.
//! - An exclusive grant ends every lower fence of its key, also where the line of that end is
//!   missing.
//! - After a start, and where a node begins to lead, lines say what was put back. A hold that has
//!   neither such a line nor a claim ended with the server before.

use super::line::Entry;
use serde::Serialize;
use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

/// How many holders of one moment are kept. A server has a bound of its own, `shared_holders_max`.
const HOLDERS_MAX: usize = 20_000;

/// A stretch of time in which a client held the key.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Hold {
    /// Its fence.
    pub fence: u64,
    /// Whether others could hold the key with it.
    pub is_shared: bool,
    /// Since when, in RFC 3339.
    pub since: String,
    /// How that is known: `grant`, `claim` (it held the lock before, too), `restore`, or `end`:
    /// from the line of its end.
    pub known_by: String,
    /// Until when. `None`: no line says so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// How it ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// Who took it away, if an operator did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub forced_by: Option<Box<Party>>,
    /// Who held it.
    #[serde(flatten)]
    pub party: Party,
    /// The lease that was asked for. Renewals have no line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    #[serde(skip)]
    until_at: Option<SystemTime>,
    /// The server stopped, and no line has put this hold back since.
    #[serde(skip)]
    unconfirmed: Option<Stopped>,
    /// Lines are missing between its beginning and the moment.
    #[serde(skip)]
    has_gap: bool,
}

/// A client, as a line names it.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Party {
    /// Its session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub session_id: Option<u64>,
    /// What it calls itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub client_name: Option<String>,
    /// Where it connected from.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The name of its token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_name: Option<String>,
    /// What a client of Redis set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token: Option<String>,
    /// Its bytes, if it is no text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owner_token_hex: Option<String>,
    /// The trace of the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trace_id: Option<String>,
}

impl Party {
    /// The client that a line names.
    pub fn of(entry: &Entry) -> Party {
        Party {
            session_id: entry.session_id,
            client_name: entry.client_name.clone(),
            address: entry.address.clone(),
            token_name: entry.token_name.clone(),
            owner_token: entry.owner_token.clone(),
            owner_token_hex: entry.owner_token_hex.clone(),
            trace_id: entry.trace_id.clone(),
        }
    }
}

/// The server that knew of a hold stopped, or ceased to lead.
#[derive(Clone, Debug)]
struct Stopped {
    /// The time of its last line.
    at: Option<SystemTime>,
    time: String,
    /// Why a hold that is not put back has ended.
    ended: &'static str,
    /// Some of what was put back has no line.
    is_untold: bool,
}

/// Whether a server could know.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Mode {
    /// Before the first line that says so.
    #[default]
    Unknown,
    Serves,
    Stopped,
    /// A node of a cluster, and another one leads.
    Follows,
}

/// Collects what is known about one moment.
pub(super) struct Story {
    at: SystemTime,
    holds: BTreeMap<u64, Hold>,
    mode: Mode,
    mode_since: Option<SystemTime>,
    mode_then: Option<Mode>,
    /// Lines are missing between the last line about the key and the moment.
    has_gap: bool,
    /// The start whose locks are being put back.
    grace_ends: bool,
    is_full: bool,
    /// Holders that were not put back, and may have been at work at the moment.
    left_behind: Vec<Hold>,
}

/// What is known.
pub(super) struct Told {
    pub(super) holders: Vec<Hold>,
    pub(super) is_certain: bool,
    pub(super) notes: Vec<String>,
}

impl Story {
    pub(super) fn new(at: SystemTime) -> Self {
        Story {
            at,
            holds: BTreeMap::new(),
            mode: Mode::default(),
            mode_since: None,
            mode_then: None,
            has_gap: false,
            grace_ends: false,
            is_full: false,
            left_behind: Vec::new(),
        }
    }

    /// Lines are missing behind the one of this time.
    pub(super) fn miss(&mut self, after: Option<SystemTime>) {
        if after.is_none_or(|after| after <= self.at) {
            self.has_gap = true;
            let open = self.holds.values_mut().filter(|hold| hold.until.is_none());
            open.for_each(|hold| hold.has_gap = true);
        }
    }

    /// A line about the key or the server. `before` is the time of the line before it.
    pub(super) fn see(&mut self, entry: &Entry, before: &str) {
        let Some(time) = entry.at() else {
            return;
        };
        match entry.event.as_str() {
            "grant" => self.begin(entry, time, Duration::ZERO),
            "claim" => self.begin(entry, time, Duration::ZERO),
            "restore" => {
                let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
                self.begin(entry, time, held);
            }
            "release" if entry.ended.is_none() => {}
            "release" | "loss" | "lapse" => self.end(entry, time),
            "force" => {
                let hold = self.holds.get_mut(&entry.fence.unwrap_or(0));
                if let Some(hold) = hold {
                    hold.forced_by = Some(Box::new(Party::of(entry)));
                }
                return;
            }
            // It changed nothing.
            "refuse" => return,
            "dropped" => self.miss(Some(time)),
            "start" => {
                let is_node = entry.node_id.is_some();
                let has_grace = entry.grace_ms.unwrap_or(0) > 0;
                let ended = if has_grace {
                    "unclaimed"
                } else {
                    "not_restored"
                };
                self.change_server(entry, before, ended);
                self.grace_ends = !has_grace;
                let mode = if is_node { Mode::Follows } else { Mode::Serves };
                self.set_mode_at(Mode::Stopped, humantime::parse_rfc3339(before).ok());
                self.set_mode_at(mode, Some(time));
            }
            "lead" => {
                self.change_server(entry, before, "ended_elsewhere");
                self.grace_ends = true;
                self.set_mode_at(Mode::Serves, Some(time));
            }
            "follow" => self.set_mode_at(Mode::Follows, Some(time)),
            "stop" => self.set_mode_at(Mode::Stopped, Some(time)),
            "grace_over" => {
                self.grace_ends = true;
                self.settle();
            }
            _ => {}
        }
        if !entry.is_of_server() && time <= self.at {
            self.has_gap = false;
        }
    }

    fn set_mode_at(&mut self, mode: Mode, since: Option<SystemTime>) {
        // The mode of the moment is the last one that began before it.
        if since.is_some_and(|since| since <= self.at) {
            self.mode_then = Some(mode);
        } else if self.mode_then.is_none() && self.mode_since.is_some_and(|since| since <= self.at)
        {
            self.mode_then = Some(self.mode);
        }
        self.mode = mode;
        self.mode_since = since;
    }

    /// Another server, or reign: all that is held has yet to be put back.
    fn change_server(&mut self, entry: &Entry, before: &str, ended: &'static str) {
        self.settle();
        let stopped = Stopped {
            at: humantime::parse_rfc3339(before).ok(),
            time: before.to_owned(),
            ended,
            is_untold: entry.untold.unwrap_or(0) > 0,
        };
        let open = self.holds.values_mut().filter(|hold| hold.until.is_none());
        open.for_each(|hold| hold.unconfirmed = Some(stopped.clone()));
    }

    /// What was not put back has ended with the server that knew of it.
    fn settle(&mut self) {
        let at = self.at;
        let left_behind = &mut self.left_behind;
        self.holds.retain(|_, hold| {
            let Some(stopped) = &hold.unconfirmed else {
                return true;
            };
            if stopped.is_untold {
                // It may have been put back without a line.
                return true;
            }
            hold.until = Some(stopped.time.clone());
            hold.until_at = stopped.at;
            hold.ended = Some(stopped.ended.to_owned());
            hold.unconfirmed = None;
            let is_over = hold.until_at.is_some_and(|until| until <= at);
            if is_over && left_behind.len() < HOLDERS_MAX {
                left_behind.push(hold.clone());
            }
            !is_over
        });
    }

    fn begin(&mut self, entry: &Entry, time: SystemTime, held: Duration) {
        let fence = entry.fence.unwrap_or(0);
        if let Some(hold) = self.holds.get_mut(&fence) {
            // A further count, a claim, or put back: it goes on.
            hold.unconfirmed = None;
            return;
        }
        // Put back, or claimed, under a fence whose end was taken for granted.
        self.left_behind.retain(|hold| hold.fence != fence);
        let is_shared = entry.is_shared.unwrap_or(false);
        if !is_shared {
            self.supersede(fence, time);
            if time <= self.at {
                self.left_behind.clear();
            }
        }
        let since_at = time.checked_sub(held).unwrap_or(time);
        if since_at > self.at {
            return;
        }
        if self.holds.len() >= HOLDERS_MAX {
            self.is_full = true;
            return;
        }
        let since = match held.is_zero() {
            true => entry.time.clone(),
            false => humantime::format_rfc3339_millis(since_at).to_string(),
        };
        self.holds.insert(
            fence,
            Hold {
                fence,
                is_shared,
                since,
                known_by: entry.event.clone(),
                party: Party::of(entry),
                ttl_ms: entry.ttl_ms,
                ..Hold::default()
            },
        );
    }

    /// An exclusive grant ends every lower fence.
    fn supersede(&mut self, fence: u64, time: SystemTime) {
        let at = self.at;
        self.holds.retain(|&lower, hold| {
            if lower > fence {
                return true;
            }
            if time <= at {
                return false;
            }
            if hold.until_at.is_none_or(|until| until > time) {
                hold.until_at = Some(time);
                hold.until = Some(humantime::format_rfc3339_millis(time).to_string());
                hold.ended.get_or_insert_with(|| "superseded".to_owned());
                hold.unconfirmed = None;
            }
            true
        });
    }

    fn end(&mut self, entry: &Entry, time: SystemTime) {
        let fence = entry.fence.unwrap_or(0);
        self.left_behind.retain(|hold| hold.fence != fence);
        if time <= self.at {
            self.holds.remove(&fence);
            return;
        }
        let how = match entry.event.as_str() {
            "lapse" => "lapsed",
            _ => entry.ended.as_deref().unwrap_or("ended"),
        };
        if let Some(hold) = self.holds.get_mut(&fence) {
            hold.unconfirmed = None;
            hold.ended = Some(how.to_owned());
            // An exclusive grant that stands before the release it followed has set it already.
            if hold.until_at.is_none_or(|until| until > time) {
                hold.until_at = Some(time);
                hold.until = Some(entry.time.clone());
            }
            return;
        }
        // Its beginning is in no file.
        let held = Duration::from_millis(entry.held_ms.unwrap_or(0));
        let since_at = time.checked_sub(held).unwrap_or(time);
        if since_at <= self.at && self.holds.len() < HOLDERS_MAX {
            self.holds.insert(
                fence,
                Hold {
                    fence,
                    since: humantime::format_rfc3339_millis(since_at).to_string(),
                    known_by: "end".to_owned(),
                    until: Some(entry.time.clone()),
                    ended: Some(how.to_owned()),
                    party: Party::of(entry),
                    until_at: Some(time),
                    ..Hold::default()
                },
            );
        }
    }

    /// All lines were seen. They begin and end at these times.
    pub(super) fn finish(mut self, first: Option<SystemTime>, last: Option<SystemTime>) -> Told {
        if self.grace_ends {
            self.settle();
        }
        let at = self.at;
        let mut notes = Vec::new();
        let mut is_certain = true;
        let holds = std::mem::take(&mut self.holds).into_values();
        let holders: Vec<Hold> = holds
            .filter(|hold| hold.until_at.is_none_or(|until| until > at))
            .collect();
        let mut doubt = |note: &str| {
            is_certain = false;
            notes.push(note.to_owned());
        };
        if self.is_full {
            doubt("there were more holders than are kept here");
        }
        if holders.iter().any(|hold| hold.unconfirmed.is_some()) {
            doubt(
                "the server was started anew since, and no line says whether the lock was put back or claimed",
            );
        }
        let is_open = |hold: &Hold| hold.until.is_none() && hold.has_gap;
        if holders.iter().any(is_open) {
            doubt("lines are missing since the lock was granted, and its end may be among them");
        }
        if holders.is_empty() {
            let mode = match self.mode_then {
                Some(mode) => mode,
                None if self.mode_since.is_none_or(|since| since > at) => Mode::Unknown,
                None => self.mode,
            };
            if first.is_none_or(|first| at < first) {
                doubt("the files begin later, and no later line tells of a hold at that time");
            }
            if self.has_gap {
                doubt("lines are missing before that time, and a grant may be among them");
            }
            match mode {
                Mode::Follows => doubt(
                    "this node did not lead at that time: ask the audit logs of the other nodes",
                ),
                Mode::Stopped => notes.push("no server ran at that time".to_owned()),
                Mode::Unknown | Mode::Serves => {}
            }
            for hold in &self.left_behind {
                is_certain = false;
                notes.push(format!(
                    "fence {} of {} was held when the server stopped at {} and was {}: its holder may have been at work \
                     until its lease ran out",
                    hold.fence,
                    hold.party.client_name.as_deref().unwrap_or("an unknown client"),
                    hold.until.as_deref().unwrap_or("an unknown time"),
                    match hold.ended.as_deref() {
                        Some("unclaimed") => "not claimed afterwards",
                        Some("ended_elsewhere") => "not held any more when this node led again",
                        _ => "not put back afterwards",
                    }
                ));
            }
        }
        if last.is_some_and(|last| at > last) {
            notes.push(
                "the last line is older: what happened since then has no line yet".to_owned(),
            );
        }
        Told {
            holders,
            is_certain,
            notes,
        }
    }
}
