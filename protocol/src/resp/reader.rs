//! Commands off a stream of bytes.
//!
//! A command is either a count and as many arguments, each behind its length
//! (`*2\r\n$3\r\nGET\r\n$1\r\nk\r\n`), or a line ([`super::inline`]). The reader buffers nothing:
//! its caller keeps the bytes, and passes the same ones with more behind them until the command is
//! whole. The reader remembers how far it got, so that a command in a thousand pieces is not read a
//! thousand times.

use super::error::ProtocolError;
use super::inline;
use super::limits::{
    ARGS_KEPT_MAX, ARGS_MAX, BULK_BYTES_MAX, COMMAND_BYTES_MAX, INLINE_BYTES_KEPT_MAX,
    LINE_BYTES_MAX, STRICT_ARGS_MAX, STRICT_BULK_BYTES_MAX,
};
use super::number::{parse_integer, take_number};
use std::ops::Range;

/// Commands with more arguments are not read in one go.
const ARGS_USUAL_MAX: usize = 8;

/// Bytes of `\r\n`.
const LINE_END_BYTES: usize = 2;

/// Reads commands, one after the other. One per connection.
#[derive(Debug, Default)]
pub struct Reader {
    /// Where the arguments lie: in the caller's bytes, or in `unquoted` when `step` came through
    /// [`Step::Inline`].
    args: Vec<Span>,
    /// The arguments of an inline command.
    unquoted: Vec<u8>,
    /// Whether `args` point into `unquoted`.
    is_inline: bool,
    /// What comes next in the bytes.
    step: Step,
    /// Bytes of this command that are read.
    parsed: usize,
    /// Bytes of this command that are known to hold no line end, if that is more.
    scanned: usize,
    /// Whether the peer has not authenticated yet.
    strict: bool,
}

/// Where in a command the reader stands.
#[derive(Clone, Copy, Debug, Default)]
enum Step {
    /// Before the first byte.
    #[default]
    Begin,
    /// In a line that is the whole command.
    Inline,
    /// In the line that says how many arguments follow.
    Count,
    /// In the line that says how long the next argument is.
    BulkLength { args_left: u32 },
    /// In an argument.
    Bulk { bulk_bytes: u32, args_left: u32 },
    /// Behind a command, or an error: the arguments can be read, and the next call begins anew.
    End,
}

/// Half of what a `Range<usize>` takes; `COMMAND_BYTES_MAX` is asserted to fit.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u32,
    end: u32,
}

impl Reader {
    /// A reader that stands before its first command.
    pub fn new() -> Self {
        Self::default()
    }

    /// Whether to hold the peer to what a stranger may send ([`STRICT_ARGS_MAX`],
    /// [`STRICT_BULK_BYTES_MAX`]).
    pub fn set_strict(&mut self, strict: bool) {
        self.strict = strict;
    }

    /// Reads the command that `bytes` begin with. `Some` tells how many bytes it took:
    /// [`Self::arg`] gives its arguments until the next call, which must come without these bytes.
    /// `None` means that it is incomplete; the next call must come with the same bytes and more.
    ///
    /// An empty line and a count of zero or less are commands without arguments, to be skipped
    /// unanswered. `None` is never the answer to [`COMMAND_BYTES_MAX`] bytes or more.
    #[inline]
    pub fn next(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        if matches!(self.step, Step::End) {
            self.begin();
        }
        if matches!(self.step, Step::Begin)
            && let Some(used) = self.read_whole(bytes)
        {
            self.step = Step::End;
            return Ok(Some(used));
        }
        let outcome = self.advance(bytes);
        if !matches!(outcome, Ok(None)) {
            self.step = Step::End;
        }
        outcome
    }

    /// How many arguments the command has, its name included.
    #[inline]
    pub fn len(&self) -> usize {
        self.args.len()
    }

    /// Whether there is nothing to do: an empty line or an empty array.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.args.is_empty()
    }

    /// One argument of the command; 0 is its name. `bytes` are those that [`Self::next`] found it
    /// in.
    ///
    /// # Panics
    /// If there is no such argument, or `bytes` are other ones.
    #[inline]
    pub fn arg<'a>(&'a self, bytes: &'a [u8], index: usize) -> &'a [u8] {
        let Span { start, end } = self.args[index];
        let source = if self.is_inline {
            &self.unquoted
        } else {
            bytes
        };
        &source[start as usize..end as usize]
    }

    /// All arguments of the command, its name first.
    #[inline]
    pub fn args<'a>(&'a self, bytes: &'a [u8]) -> impl ExactSizeIterator<Item = &'a [u8]> + Clone {
        (0..self.args.len()).map(move |index| self.arg(bytes, index))
    }

    /// Forgets the last command, and gives back what only an unusual one needs.
    fn begin(&mut self) {
        self.args.clear();
        if self.args.capacity() > ARGS_KEPT_MAX {
            self.args.shrink_to(ARGS_KEPT_MAX);
        }
        if self.is_inline {
            self.unquoted.clear();
            self.unquoted.shrink_to(INLINE_BYTES_KEPT_MAX);
            self.is_inline = false;
        }
        self.step = Step::Begin;
        self.parsed = 0;
        self.scanned = 0;
    }

    /// The fast path: reads a command that is complete and of a usual shape, as nearly all are.
    /// `None` decides nothing: the command is then read step by step, with every bound checked and
    /// every error named.
    #[inline]
    fn read_whole(&mut self, bytes: &[u8]) -> Option<usize> {
        // A stranger's bounds are checked on the slow path.
        let longest = if self.strict { 0 } else { COMMAND_BYTES_MAX };
        let bytes = &bytes[..bytes.len().min(longest)];
        let mut rest = bytes;
        let count = take_number(b'*', &mut rest)?;
        if !(1..=ARGS_USUAL_MAX).contains(&count) {
            return None;
        }
        let mut spans = [Span { start: 0, end: 0 }; ARGS_USUAL_MAX];
        for span in &mut spans[..count] {
            let bulk_bytes = take_number(b'$', &mut rest)?;
            let start = bytes.len() - rest.len();
            if bulk_bytes > BULK_BYTES_MAX {
                return None;
            }
            rest = rest.get(bulk_bytes..)?.strip_prefix(b"\r\n")?;
            *span = Span::new(start..start + bulk_bytes);
        }
        self.args.extend_from_slice(&spans[..count]);
        Some(bytes.len() - rest.len())
    }

    /// The slow path: goes on from the present step as far as the bytes reach.
    fn advance(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        loop {
            match self.step {
                Step::Begin => {
                    self.step = match bytes.first() {
                        None => return Ok(None),
                        Some(b'*') => Step::Count,
                        Some(_) => Step::Inline,
                    }
                }
                Step::Inline => return self.read_inline(bytes),
                Step::Count => {
                    let too_long = ProtocolError::MultibulkLineTooLong;
                    let Some(line) = self.take_line(bytes, too_long)? else {
                        return Ok(None);
                    };
                    let args_left = self.checked_count(&line[1..])?;
                    if args_left == 0 {
                        return Ok(Some(self.parsed));
                    }
                    self.step = Step::BulkLength { args_left };
                }
                Step::BulkLength { args_left } => {
                    let too_long = ProtocolError::BulkLineTooLong;
                    let Some(line) = self.take_line(bytes, too_long)? else {
                        return Ok(None);
                    };
                    let bulk_bytes = self.checked_bulk_length(line)?;
                    self.step = Step::Bulk {
                        bulk_bytes,
                        args_left,
                    };
                }
                Step::Bulk {
                    bulk_bytes,
                    args_left,
                } => {
                    let end = self.parsed + bulk_bytes as usize;
                    let behind = end + LINE_END_BYTES;
                    if bytes.len() < behind {
                        return Ok(None);
                    }
                    self.args.push(Span::new(self.parsed..end));
                    self.parsed = behind;
                    if args_left == 1 {
                        return Ok(Some(behind));
                    }
                    self.step = Step::BulkLength {
                        args_left: args_left - 1,
                    };
                }
                Step::End => unreachable!("`next` begins anew behind a command"),
            }
        }
    }

    /// The line that begins at `parsed`, up to its carriage return. Redis skips the byte behind
    /// that one unseen.
    #[inline]
    fn take_line<'a>(
        &mut self,
        bytes: &'a [u8],
        too_long: ProtocolError,
    ) -> Result<Option<&'a [u8]>, ProtocolError> {
        let start = self.parsed;
        let end = self.find(b'\r', bytes);
        if end - start > LINE_BYTES_MAX {
            return Err(too_long);
        }
        if end + LINE_END_BYTES > COMMAND_BYTES_MAX {
            return Err(ProtocolError::CommandTooLong);
        }
        if end + LINE_END_BYTES > bytes.len() {
            return Ok(None);
        }
        self.parsed = end + LINE_END_BYTES;
        Ok(Some(&bytes[start..end]))
    }

    /// Where the first `wanted` of the line stands, or where the bytes end.
    #[inline]
    fn find(&mut self, wanted: u8, bytes: &[u8]) -> usize {
        let from = self.parsed.max(self.scanned);
        let unseen = bytes.get(from..).unwrap_or_default();
        let end = match unseen.iter().position(|&byte| byte == wanted) {
            Some(distance) => from + distance,
            None => bytes.len(),
        };
        self.scanned = end;
        end
    }

    #[cold]
    fn read_inline(&mut self, bytes: &[u8]) -> Result<Option<usize>, ProtocolError> {
        let end = self.find(b'\n', bytes);
        if end > LINE_BYTES_MAX {
            return Err(ProtocolError::InlineTooLong);
        }
        if end == bytes.len() {
            return Ok(None);
        }
        let line = &bytes[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        self.is_inline = true;
        let Self { args, unquoted, .. } = self;
        inline::split(line, unquoted, |range| args.push(Span::new(range)))?;
        Ok(Some(end + 1))
    }

    /// How many arguments follow: `text` is the line without its `*`.
    #[inline]
    fn checked_count(&self, text: &[u8]) -> Result<u32, ProtocolError> {
        let count = parse_integer(text).ok_or(ProtocolError::MultibulkLength)?;
        // Redis takes a negative count for zero.
        let count = usize::try_from(count).unwrap_or(0);
        if count > ARGS_MAX {
            Err(ProtocolError::MultibulkLength)
        } else if self.strict && count > STRICT_ARGS_MAX {
            Err(ProtocolError::UnauthenticatedMultibulkLength)
        } else {
            Ok(count as u32)
        }
    }

    /// How long the next argument is; it begins at `parsed`.
    #[inline]
    fn checked_bulk_length(&self, line: &[u8]) -> Result<u32, ProtocolError> {
        let text = match line {
            [b'$', text @ ..] => text,
            [got, ..] => return Err(ProtocolError::ExpectedBulk { got: *got }),
            // An empty line: the next byte is its end.
            [] => return Err(ProtocolError::ExpectedBulk { got: b'\r' }),
        };
        let bulk_bytes = parse_integer(text)
            .and_then(|bulk_bytes| usize::try_from(bulk_bytes).ok())
            .filter(|bulk_bytes| *bulk_bytes <= BULK_BYTES_MAX)
            .ok_or(ProtocolError::BulkLength)?;
        if self.strict && bulk_bytes > STRICT_BULK_BYTES_MAX {
            Err(ProtocolError::UnauthenticatedBulkLength)
        } else if self.parsed + bulk_bytes + LINE_END_BYTES > COMMAND_BYTES_MAX {
            Err(ProtocolError::CommandTooLong)
        } else {
            Ok(bulk_bytes as u32)
        }
    }
}

impl Span {
    #[inline]
    fn new(range: Range<usize>) -> Self {
        debug_assert!(range.end <= COMMAND_BYTES_MAX, "{} bytes", range.end);
        Self {
            start: range.start as u32,
            end: range.end as u32,
        }
    }
}

#[cfg(test)]
mod tests;
