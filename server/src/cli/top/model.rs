//! What is shown: the last look, how it differs from the one before, and what the operator has
//! chosen. No terminal and no server here.

use super::super::text::escaped;
use super::sample::Sample;
use fencepost::{LockInfo, SessionInfo};
use protocol::Fence;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use std::cmp::Reverse;
use std::collections::{BTreeMap, VecDeque};

/// How many looks the small charts go back.
pub(super) const HISTORY_MAX: usize = 240;

/// The longest filter that can be typed.
const FILTER_CHARS_MAX: usize = 256;

/// Which table is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Tab {
    Locks,
    Prefixes,
    Sessions,
}

impl Tab {
    pub(super) const ALL: [Tab; 3] = [Tab::Locks, Tab::Prefixes, Tab::Sessions];

    pub(super) fn name(self) -> &'static str {
        match self {
            Tab::Locks => "locks",
            Tab::Prefixes => "prefixes",
            Tab::Sessions => "sessions",
        }
    }

    /// What its rows can be sorted by, beginning with the usual.
    pub(super) fn columns(self) -> &'static [&'static str] {
        match self {
            Tab::Locks => &["QUEUE", "KEY", "HELD", "LEFT", "HOLDER"],
            Tab::Prefixes => &["LOCKS", "WAITING", "PREFIX"],
            Tab::Sessions => &["LOCKS", "WAITING", "AGE", "CLIENT"],
        }
    }
}

/// A lock that is to be taken away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    pub(super) key: Vec<u8>,
    pub(super) fence: Fence,
    pub(super) holder: String,
}

/// What a keystroke asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Command {
    Nothing,
    Look,
    Quit,
    Force(Victim),
}

/// What the operator is in the middle of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Input {
    None,
    Filter(String),
    Confirm(Victim),
}

/// A chart: values of the last looks, the newest last.
#[derive(Clone, Debug, Default)]
pub(super) struct Chart {
    pub(super) values: VecDeque<u64>,
}

impl Chart {
    fn push(&mut self, value: u64) {
        if self.values.len() == HISTORY_MAX {
            self.values.pop_front();
        }
        self.values.push_back(value);
    }

    pub(super) fn last(&self) -> u64 {
        self.values.back().copied().unwrap_or(0)
    }
}

/// Keys that begin alike.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PrefixRow {
    pub(super) prefix: String,
    pub(super) locks: u64,
    pub(super) waiting: u64,
}

pub(super) struct Model {
    pub(super) server: String,
    pub(super) sample: Option<Sample>,
    pub(super) tab: Tab,
    sort: [usize; 3],
    is_reversed: [bool; 3],
    lock_filter: String,
    session_filter: String,
    pub(super) input: Input,
    pub(super) selected: usize,
    /// What a key press has come to, until the next one; or why the last look failed.
    pub(super) message: String,
    is_complaint: bool,
    pub(super) requests: Chart,
    pub(super) grants: Chart,
    /// In microseconds, the mean of each interval.
    pub(super) hand_offs: Chart,
    pub(super) expiry_lag: Chart,
    pub(super) commits: Chart,
}

pub(super) fn is_quit(key: &KeyEvent) -> bool {
    let is_control_c =
        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
    is_control_c || matches!(key.code, KeyCode::Char('q') | KeyCode::Esc)
}

impl Model {
    pub(super) fn new(server: String, prefix: String) -> Self {
        Model {
            server,
            sample: None,
            tab: Tab::Locks,
            sort: [0; 3],
            is_reversed: [false; 3],
            lock_filter: prefix,
            session_filter: String::new(),
            input: Input::None,
            selected: 0,
            message: String::new(),
            is_complaint: false,
            requests: Chart::default(),
            grants: Chart::default(),
            hand_offs: Chart::default(),
            expiry_lag: Chart::default(),
            commits: Chart::default(),
        }
    }

    /// What the keys begin with that the server is asked for.
    pub(super) fn prefix(&self) -> &str {
        &self.lock_filter
    }

    pub(super) fn filter(&self) -> &str {
        match self.tab {
            Tab::Locks | Tab::Prefixes => &self.lock_filter,
            Tab::Sessions => &self.session_filter,
        }
    }

    pub(super) fn column(&self) -> &'static str {
        self.tab.columns()[self.sort[self.tab as usize]]
    }

    pub(super) fn is_reversed(&self) -> bool {
        self.is_reversed[self.tab as usize]
    }

    /// Says something at the bottom until the next look.
    pub(super) fn complain(&mut self, message: String) {
        self.message = message;
        self.is_complaint = true;
    }

    /// Says what a key press has come to, until the next one.
    pub(super) fn say(&mut self, message: impl Into<String>) {
        self.message = message.into();
        self.is_complaint = false;
    }

    /// Takes a new look in.
    pub(super) fn update(&mut self, sample: Sample) {
        let interval_ms = match &self.sample {
            Some(before) => sample.at.duration_since(before.at).as_millis() as u64,
            // The first one: since the server's start.
            None => sample.number("uptime_ms"),
        };
        let before = |name: &str| self.sample.as_ref().map_or(0, |before| before.number(name));
        // A server that was started anew counts from zero.
        let grown = |name: &str| sample.number(name).saturating_sub(before(name));
        let rate = |name: &str| grown(name).saturating_mul(1_000) / interval_ms.max(1);
        let mean = |sum: &str, count: &str| grown(sum).checked_div(grown(count)).unwrap_or(0);
        let mean_of_ms = |sum: &str, count: &str| {
            let us = grown(sum).saturating_mul(1_000);
            us.checked_div(grown(count)).unwrap_or(0)
        };
        let requests = rate("requests_total");
        let grants = rate("acquire_grants_total");
        let hand_offs = mean("hand_off_us_sum", "hand_off_count");
        let lag = mean_of_ms("expiry_lag_ms_sum", "expiry_lag_count");
        let commits = match sample.numbers.contains_key("cluster_term") {
            true => mean("cluster_commit_us_sum", "cluster_commit_count"),
            false => mean("log_sync_us_sum", "log_sync_count"),
        };
        self.requests.push(requests);
        self.grants.push(grants);
        self.hand_offs.push(hand_offs);
        self.expiry_lag.push(lag);
        self.commits.push(commits);
        self.sample = Some(sample);
        if self.is_complaint {
            self.message.clear();
        }
        self.selected = self.selected.min(self.row_count().saturating_sub(1));
    }

    // ---- rows

    /// The locks, in the order that was chosen.
    pub(super) fn locks(&self) -> Vec<&LockInfo> {
        let Some(sample) = &self.sample else {
            return Vec::new();
        };
        let mut locks: Vec<&LockInfo> = sample.locks.iter().collect();
        let held = |lock: &LockInfo| {
            lock.contention
                .holder
                .as_ref()
                .map(|holder| holder.held_for)
        };
        let left = |lock: &LockInfo| {
            let holder = lock.contention.holder.as_ref();
            holder.map(|holder| holder.remaining.unwrap_or(std::time::Duration::MAX))
        };
        let holder = |lock: &LockInfo| {
            let holder = lock.contention.holder.as_ref();
            holder.map(|holder| holder.client_name.clone())
        };
        match self.column() {
            "QUEUE" => locks.sort_by(|a, b| {
                let order = |lock: &LockInfo| Reverse(lock.contention.queue_length);
                (order(a), &a.key).cmp(&(order(b), &b.key))
            }),
            "HELD" => locks.sort_by_key(|lock| (Reverse(held(lock)), lock.key.clone())),
            "LEFT" => locks.sort_by_key(|lock| (left(lock), lock.key.clone())),
            "HOLDER" => locks.sort_by_key(|lock| (holder(lock), lock.key.clone())),
            _ => locks.sort_by(|a, b| a.key.cmp(&b.key)),
        }
        if self.is_reversed() {
            locks.reverse();
        }
        locks
    }

    /// The locks that were listed, counted by what their keys begin with, up to the first slash.
    pub(super) fn prefixes(&self) -> Vec<PrefixRow> {
        let mut counts: BTreeMap<Vec<u8>, (u64, u64)> = BTreeMap::new();
        for lock in self.sample.iter().flat_map(|sample| &sample.locks) {
            let past = self.lock_filter.len().min(lock.key.len());
            let slash = lock.key[past..].iter().position(|byte| *byte == b'/');
            let prefix = match slash {
                Some(slash) => lock.key[..past + slash + 1].to_vec(),
                None => lock.key[..past].to_vec(),
            };
            let count = counts.entry(prefix).or_default();
            count.0 += u64::from(lock.contention.holder_count > 0);
            count.1 += u64::from(lock.contention.queue_length);
        }
        let rows = counts
            .into_iter()
            .map(|(prefix, (locks, waiting))| PrefixRow {
                prefix: match &prefix[..] {
                    b"" => "(no slash)".to_owned(),
                    prefix => escaped(prefix),
                },
                locks,
                waiting,
            });
        let mut rows: Vec<PrefixRow> = rows.collect();
        match self.column() {
            "LOCKS" => rows.sort_by_key(|row| Reverse(row.locks)),
            "WAITING" => rows.sort_by_key(|row| Reverse(row.waiting)),
            _ => {}
        }
        if self.is_reversed() {
            rows.reverse();
        }
        rows
    }

    pub(super) fn sessions(&self) -> Vec<&SessionInfo> {
        let sessions = self.sample.iter().flat_map(|sample| &sample.sessions);
        let wanted = |session: &&SessionInfo| session.client_name.contains(&self.session_filter);
        let mut sessions: Vec<&SessionInfo> = sessions.filter(wanted).collect();
        match self.column() {
            "LOCKS" => sessions.sort_by_key(|session| Reverse(session.lock_count)),
            "WAITING" => sessions.sort_by_key(|session| Reverse(session.waiter_count)),
            "AGE" => sessions.sort_by_key(|session| Reverse(session.age)),
            _ => sessions.sort_by(|a, b| a.client_name.cmp(&b.client_name)),
        }
        if self.is_reversed() {
            sessions.reverse();
        }
        sessions
    }

    pub(super) fn row_count(&self) -> usize {
        match self.tab {
            Tab::Locks => self.sample.as_ref().map_or(0, |sample| sample.locks.len()),
            Tab::Prefixes => self.prefixes().len(),
            Tab::Sessions => self.sessions().len(),
        }
    }

    // ---- keys

    pub(super) fn press(&mut self, key: &KeyEvent) -> Command {
        self.message.clear();
        match std::mem::replace(&mut self.input, Input::None) {
            Input::None => self.press_plain(key),
            Input::Filter(text) => self.press_in_filter(text, key),
            Input::Confirm(victim) => match key.code {
                KeyCode::Char('y') => Command::Force(victim),
                _ => {
                    self.say("nothing was taken away");
                    Command::Nothing
                }
            },
        }
    }

    fn press_plain(&mut self, key: &KeyEvent) -> Command {
        if is_quit(key) {
            return Command::Quit;
        }
        const PAGE: usize = 10;
        let last = self.row_count().saturating_sub(1);
        match key.code {
            KeyCode::Tab => self.turn_to((self.tab as usize + 1) % Tab::ALL.len()),
            KeyCode::BackTab => self.turn_to((self.tab as usize + 2) % Tab::ALL.len()),
            KeyCode::Char(digit @ '1'..='3') => self.turn_to(digit as usize - '1' as usize),
            KeyCode::Down | KeyCode::Char('j') => self.selected = (self.selected + 1).min(last),
            KeyCode::Up | KeyCode::Char('k') => self.selected = self.selected.saturating_sub(1),
            KeyCode::PageDown => self.selected = (self.selected + PAGE).min(last),
            KeyCode::PageUp => self.selected = self.selected.saturating_sub(PAGE),
            KeyCode::Home | KeyCode::Char('g') => self.selected = 0,
            KeyCode::End | KeyCode::Char('G') => self.selected = last,
            KeyCode::Char('s') => {
                let sort = &mut self.sort[self.tab as usize];
                *sort = (*sort + 1) % self.tab.columns().len();
            }
            KeyCode::Char('r') => {
                let is_reversed = &mut self.is_reversed[self.tab as usize];
                *is_reversed = !*is_reversed;
            }
            KeyCode::Char('/') => self.input = Input::Filter(self.filter().to_owned()),
            KeyCode::Char('f') => self.ask_to_force(),
            _ => {}
        }
        Command::Nothing
    }

    fn turn_to(&mut self, index: usize) {
        self.tab = Tab::ALL[index];
        self.selected = 0;
    }

    fn press_in_filter(&mut self, mut text: String, key: &KeyEvent) -> Command {
        match key.code {
            KeyCode::Esc => return Command::Nothing,
            KeyCode::Enter => {
                self.selected = 0;
                match self.tab {
                    Tab::Locks | Tab::Prefixes => self.lock_filter = text,
                    Tab::Sessions => self.session_filter = text,
                }
                return Command::Look;
            }
            KeyCode::Backspace => _ = text.pop(),
            KeyCode::Char('u') if key.modifiers.contains(KeyModifiers::CONTROL) => text.clear(),
            KeyCode::Char(c)
                if text.chars().count() < FILTER_CHARS_MAX
                    && !key.modifiers.contains(KeyModifiers::CONTROL) =>
            {
                text.push(c);
            }
            _ => {}
        }
        self.input = Input::Filter(text);
        Command::Nothing
    }

    fn ask_to_force(&mut self) {
        let locks = self.locks();
        let lock = locks.get(self.selected).filter(|_| self.tab == Tab::Locks);
        let holder = lock.and_then(|lock| Some((lock, lock.contention.holder.as_ref()?)));
        let victim = holder.map(|(lock, holder)| Victim {
            key: lock.key.clone(),
            fence: holder.fence,
            holder: holder.client_name.clone(),
        });
        match victim {
            Some(victim) => self.input = Input::Confirm(victim),
            None => self.say("select a lock that is held first"),
        }
    }
}
