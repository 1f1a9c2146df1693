//! The append lane, sending side: a stream of requests in, a stream of their results out, with
//! many under way.
//!
//! openraft's stream of requests ends whenever there is nothing to send, and is dropped when the
//! leadership ends; the connection outlives it. So every stream has a number, and answers to
//! requests of an earlier one are skipped.
//!
//! A request without entries, other than a stream's first, only says how far the log is committed.
//! It waits a moment for entries to travel with, whose request says that too: under load every
//! second message would be one of these, and would wake both ends for something no client waits
//! for. openraft takes an answer for the answer to all requests before it, so the one that was left
//! out needs none.

use super::connection::{Connection, ConnectionError};
use super::control::STALL_TIMEOUT;
use super::outbox::pieces;
use super::wire::{APPEND_BYTES_MAX, Message};
use crate::types::Types;
use futures_util::{Stream, StreamExt};
use openraft::raft::{AppendEntriesRequest, StreamAppendResult};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, Sleep, sleep_until};

/// How many requests may be unanswered. The receiving side reads no more than that ahead.
pub(super) const APPENDS_MAX: usize = 64;

/// No further request is taken while so much is not written yet.
const GATHERED_BYTES_MAX: usize = 1 << 20;

/// How long a follower may be the last to hear of a commit.
pub(super) const COMMIT_NEWS_DELAY: Duration = Duration::from_millis(10);

/// A connection, and how far it has come.
pub(super) struct AppendLine<S> {
    connection: Connection<S>,
    last_stream: u64,
    last_id: u64,
}

impl<S> AppendLine<S> {
    /// On a connection that has said hello.
    pub(super) fn new(connection: Connection<S>) -> Self {
        AppendLine {
            connection,
            last_stream: 0,
            last_id: 0,
        }
    }
}

/// One stream of requests on a connection. After an `Err` the connection is of no use any more,
/// and `line` is empty.
pub(super) struct Pipeline<'s, S, I> {
    line: &'s mut Option<AppendLine<S>>,
    input: I,
    input_ended: bool,
    unanswered: VecDeque<Unanswered>,
    stall: Pin<Box<Sleep>>,
    /// A request without entries, which waits until `news_due`.
    news: Option<AppendEntriesRequest<Types>>,
    news_due: Pin<Box<Sleep>>,
    is_over: bool,
}

struct Unanswered {
    id: u64,
    /// Whether openraft hears of its success: it is a whole request, or the last piece of one.
    is_last: bool,
}

impl<'s, S, I> Pipeline<'s, S, I>
where
    S: AsyncRead + AsyncWrite + Unpin,
    I: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    /// Begins a stream with its first request. There must be a line.
    pub(super) fn new(
        line: &'s mut Option<AppendLine<S>>,
        first: AppendEntriesRequest<Types>,
        input: I,
    ) -> Result<Self, PipelineError> {
        let mut pipeline = Pipeline {
            line,
            input,
            input_ended: false,
            unanswered: VecDeque::new(),
            stall: Box::pin(sleep_until(Instant::now() + STALL_TIMEOUT)),
            news: None,
            news_due: Box::pin(sleep_until(Instant::now())),
            is_over: false,
        };
        let line = pipeline.line.as_mut().expect("it is connected");
        line.last_stream += 1;
        pipeline.send(first)?;
        Ok(pipeline)
    }

    fn send(&mut self, request: AppendEntriesRequest<Types>) -> Result<(), PipelineError> {
        let line = self.line.as_mut().expect("it is connected");
        let pieces =
            pieces(request).map_err(|entry_bytes| PipelineError::TooLong { entry_bytes })?;
        let count = pieces.len();
        for (place, piece) in pieces.into_iter().enumerate() {
            line.last_id += 1;
            let message = Message::Append(line.last_stream, piece);
            line.connection.outbox.message(line.last_id, &message);
            if self.unanswered.is_empty() {
                self.stall.as_mut().reset(Instant::now() + STALL_TIMEOUT);
            }
            self.unanswered.push_back(Unanswered {
                id: line.last_id,
                is_last: place + 1 == count,
            });
        }
        Ok(())
    }

    /// Takes all requests that are ready, so that they leave together. Whether it stopped because
    /// too much is gathered.
    fn take_requests(&mut self, cx: &mut Context<'_>) -> Result<bool, PipelineError> {
        while !self.input_ended && self.unanswered.len() < APPENDS_MAX {
            if self.is_full() {
                return Ok(true);
            }
            match self.input.poll_next_unpin(cx) {
                Poll::Ready(Some(request)) if request.entries.is_empty() => self.keep(request),
                Poll::Ready(Some(request)) => {
                    self.news = None;
                    self.send(request)?;
                }
                Poll::Ready(None) => self.input_ended = true,
                Poll::Pending => break,
            }
        }
        self.send_news(cx)?;
        Ok(false)
    }

    /// Sends news of a commit that have waited for long enough.
    fn send_news(&mut self, cx: &mut Context<'_>) -> Result<(), PipelineError> {
        let has_room = self.unanswered.len() < APPENDS_MAX;
        let Some(news) = self.news.take_if(|_| {
            has_room && (self.input_ended || self.news_due.as_mut().poll(cx).is_ready())
        }) else {
            return Ok(());
        };
        self.send(news)
    }

    /// Keeps news of a commit for a moment. What is kept already is older, and says less.
    fn keep(&mut self, news: AppendEntriesRequest<Types>) {
        if self.news.replace(news).is_none() {
            let due = Instant::now() + COMMIT_NEWS_DELAY;
            self.news_due.as_mut().reset(due);
        }
    }

    fn is_full(&self) -> bool {
        let line = self.line.as_ref().expect("it is connected");
        line.connection.outbox.bytes() >= GATHERED_BYTES_MAX
    }

    /// The next answer to a request of this stream.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Result<StreamAppendResult<Types>, PipelineError>> {
        loop {
            let line = self.line.as_mut().expect("it is connected");
            let frame = match line.connection.poll_frame(cx) {
                Poll::Ready(frame) => frame?,
                Poll::Pending => return Poll::Pending,
            };
            let kind = frame.message.kind();
            let Message::Appended(result) = frame.message else {
                return Poll::Ready(Err(ConnectionError::OutOfPlace { kind }.into()));
            };
            let first = self.unanswered.front().map_or(line.last_id + 1, |it| it.id);
            if frame.id < first {
                continue;
            }
            if frame.id > first || self.unanswered.is_empty() {
                return Poll::Ready(Err(ConnectionError::OutOfPlace { kind }.into()));
            }
            let answered = self.unanswered.pop_front().expect("checked above");
            self.stall.as_mut().reset(Instant::now() + STALL_TIMEOUT);
            if result.is_err() || answered.is_last {
                return Poll::Ready(Ok(result));
            }
        }
    }

    fn poll_result(
        &mut self,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<StreamAppendResult<Types>, PipelineError>>> {
        loop {
            let was_full = self.take_requests(cx)?;
            match self.poll_answer(cx) {
                Poll::Ready(answer) => return Poll::Ready(Some(answer)),
                Poll::Pending if self.unanswered.is_empty() && self.input_ended => {
                    return Poll::Ready(None);
                }
                // It was written before an answer was looked for: there may be room again.
                Poll::Pending if was_full && !self.is_full() => {}
                Poll::Pending => break,
            }
        }
        match !self.unanswered.is_empty() && self.stall.as_mut().poll(cx).is_ready() {
            true => Poll::Ready(Some(Err(ConnectionError::Late("answer").into()))),
            false => Poll::Pending,
        }
    }
}

impl<S, I> Stream for Pipeline<'_, S, I>
where
    S: AsyncRead + AsyncWrite + Unpin,
    I: Stream<Item = AppendEntriesRequest<Types>> + Unpin,
{
    type Item = Result<StreamAppendResult<Types>, PipelineError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let pipeline = self.get_mut();
        if pipeline.is_over {
            return Poll::Ready(None);
        }
        let result = ready!(pipeline.poll_result(cx));
        match &result {
            Some(Ok(Ok(_))) => {}
            // The receiving side answers nothing more of this stream. The connection goes on.
            Some(Ok(Err(_))) | None => pipeline.is_over = true,
            Some(Err(_)) => {
                pipeline.is_over = true;
                *pipeline.line = None;
            }
        }
        Poll::Ready(result)
    }
}

/// Why a stream ended early. Its connection ends with it.
#[derive(Debug)]
pub(super) enum PipelineError {
    Connection(ConnectionError),
    /// The log has an entry that fits into no frame: a mistake of ours.
    TooLong {
        entry_bytes: usize,
    },
}

impl From<ConnectionError> for PipelineError {
    fn from(error: ConnectionError) -> Self {
        PipelineError::Connection(error)
    }
}

impl fmt::Display for PipelineError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PipelineError::Connection(error) => error.fmt(f),
            PipelineError::TooLong { entry_bytes } => write!(
                f,
                "an entry of {entry_bytes} bytes is longer than the {APPEND_BYTES_MAX} that can \
                 be sent: report this as a bug"
            ),
        }
    }
}
