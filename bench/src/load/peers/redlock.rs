//! Redlock: five independent Redis servers, asked at the same time; a contender holds the lock if
//! three of them granted it.
//!
//! A lane waits for all five answers: on one machine no server is slow alone, and waiting for three
//! only would leave two answers to turn up in the middle of the next request. A contender with
//! fewer than three gives back what it got and tries again.

use super::redis::{append_release, append_renew, append_set, load_release, load_renew};
use super::resp::{self, Value};
use crate::load::speaker::{Answer, Ask, KEY_BYTES, Speaker};
use crate::load::stream::Stream;
use bytes::BytesMut;
use std::collections::VecDeque;
use std::io;

/// How many servers.
pub(crate) const SERVERS: usize = 5;

/// How many of them are enough.
const MAJORITY: u8 = 3;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Acquire,
    Release,
    Renew,
    /// A release after too few grants, which no lane waits for.
    Undo,
}

/// What a lane has heard so far.
#[derive(Clone, Copy, Default)]
struct Votes {
    key: [u8; KEY_BYTES],
    heard: u8,
    yes: u8,
}

#[derive(Default)]
pub(crate) struct Redlock {
    release_hash: String,
    renew_hash: String,
    under_way: [VecDeque<(u32, Op)>; SERVERS],
    votes: Vec<Votes>,
}

impl Redlock {
    fn ask_all(
        &mut self,
        lane: u32,
        key: &[u8; KEY_BYTES],
        op: Op,
        outs: &mut [BytesMut],
        append: impl Fn(&Self, &mut BytesMut),
    ) {
        if op != Op::Undo {
            self.votes[lane as usize] = Votes {
                key: *key,
                ..Votes::default()
            };
        }
        for (server, out) in outs.iter_mut().enumerate() {
            append(self, out);
            self.under_way[server].push_back((lane, op));
        }
    }

    fn give_back(&mut self, lane: u32, key: &[u8; KEY_BYTES], op: Op, outs: &mut [BytesMut]) {
        self.ask_all(lane, key, op, outs, |this, out| {
            append_release(out, &this.release_hash, lane, key);
        });
    }
}

impl Speaker for Redlock {
    fn open(&mut self, streams: &mut [Stream], lanes: &[u32]) -> io::Result<()> {
        for stream in streams {
            self.release_hash = load_release(stream)?;
            self.renew_hash = load_renew(stream)?;
        }
        let lane_count = lanes.iter().max().map_or(0, |&lane| lane as usize + 1);
        self.votes = vec![Votes::default(); lane_count];
        Ok(())
    }

    fn acquire(&mut self, lane: u32, ask: &Ask, outs: &mut [BytesMut]) {
        self.ask_all(lane, &ask.key, Op::Acquire, outs, |_, out| {
            append_set(out, lane, ask);
        });
    }

    fn release(&mut self, lane: u32, key: &[u8; KEY_BYTES], _: u64, outs: &mut [BytesMut]) {
        self.give_back(lane, key, Op::Release, outs);
    }

    fn renew(
        &mut self,
        lane: u32,
        key: &[u8; KEY_BYTES],
        _: u64,
        ttl_ms: u32,
        outs: &mut [BytesMut],
    ) {
        self.ask_all(lane, key, Op::Renew, outs, |this, out| {
            append_renew(out, &this.renew_hash, lane, key, ttl_ms);
        });
    }

    const RENEWS_ALL: bool = false;

    fn read(
        &mut self,
        connection: usize,
        unread: &mut &[u8],
        outs: &mut [BytesMut],
    ) -> Result<Option<Answer>, String> {
        while let Some(value) = resp::split(unread)? {
            let Some((lane, op)) = self.under_way[connection].pop_front() else {
                return Err(format!("{value:?} answers nothing"));
            };
            if op == Op::Undo {
                continue;
            }
            let votes = &mut self.votes[lane as usize];
            votes.heard += 1;
            votes.yes += u8::from(matches!(value, Value::Simple(_) | Value::Integer(1)));
            if usize::from(votes.heard) < SERVERS {
                continue;
            }
            let (is_enough, key) = (votes.yes >= MAJORITY, votes.key);
            return Ok(Some(match op {
                Op::Acquire if is_enough => Answer::Granted { lane, fence: 0 },
                Op::Acquire => {
                    self.give_back(lane, &key, Op::Undo, outs);
                    Answer::Held { lane }
                }
                Op::Release if is_enough => Answer::Released { lane },
                Op::Renew if is_enough => Answer::Renewed { lane },
                _ => Answer::NotHeld { lane },
            }));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn speaker() -> (Redlock, Vec<BytesMut>) {
        let speaker = Redlock {
            votes: vec![Votes::default(); 1],
            ..Redlock::default()
        };
        (speaker, vec![BytesMut::new(); SERVERS])
    }

    fn answer(replies: [&[u8]; SERVERS]) -> (Option<Answer>, Vec<BytesMut>) {
        let (mut speaker, mut outs) = speaker();
        let ask = Ask {
            key: [b'k'; KEY_BYTES],
            ttl_ms: 1_000,
            wait_ms: 0,
        };
        speaker.acquire(0, &ask, &mut outs);
        outs.iter_mut().for_each(BytesMut::clear);
        let mut last = None;
        for (connection, mut reply) in replies.into_iter().enumerate() {
            assert_eq!(last, None, "it waits for all five");
            last = speaker.read(connection, &mut reply, &mut outs).unwrap();
        }
        (last, outs)
    }

    #[test]
    fn three_of_five_are_enough() {
        let (answer, outs) = answer([b"+OK\r\n", b"$-1\r\n", b"+OK\r\n", b"$-1\r\n", b"+OK\r\n"]);
        assert_eq!(answer, Some(Answer::Granted { lane: 0, fence: 0 }));
        assert!(outs.iter().all(BytesMut::is_empty));
    }

    #[test]
    fn two_of_five_are_given_back() {
        let (answer, outs) = answer([b"+OK\r\n", b"$-1\r\n", b"+OK\r\n", b"$-1\r\n", b"$-1\r\n"]);
        assert_eq!(answer, Some(Answer::Held { lane: 0 }));
        assert!(outs.iter().all(|out| !out.is_empty()));
    }
}
