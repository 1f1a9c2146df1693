//! Readers and writers of single fields, and of the optional fields at the end of a message.
//!
//! There are three shapes: little-endian numbers of fixed width; byte strings, a `u16` length and
//! then the bytes; optional fields, a `u8` tag and then a byte string.

use crate::error::DecodeError;
use crate::limits;
use bytes::{BufMut, BytesMut};
use types::{Fence, Key, Lease, Mode};

/// Tags of optional fields. One numbering for all messages, never reused.
pub(crate) mod tag {
    pub(crate) const TOKEN: u8 = 1;
    pub(crate) const SESSION_KEY: u8 = 2;
    pub(crate) const METADATA: u8 = 3;
    pub(crate) const TRACE_ID: u8 = 4;
    pub(crate) const HOLD_COUNT: u8 = 5;
    pub(crate) const GRACE_MS: u8 = 6;
    pub(crate) const LEADER: u8 = 7;
    pub(crate) const ADDRESSES: u8 = 8;
    pub(crate) const WAITED_MS: u8 = 9;
    /// Reserved: which group of a cluster a connection is for.
    #[allow(
        dead_code,
        reason = "keeps the number from being used for something else"
    )]
    pub(crate) const GROUP: u8 = 10;
    pub(crate) const RECOVERING_MS: u8 = 11;
    pub(crate) const LAST_FENCE: u8 = 12;
}

/// On requests and holders: the lock is shared.
const FLAG_SHARED: u8 = 0x01;

/// The bits that say the mode.
pub(crate) const MODE_FLAGS: u8 = FLAG_SHARED;

pub(crate) const fn mode_of(flags: u8) -> Mode {
    Mode::from_is_shared(flags & FLAG_SHARED != 0)
}

pub(crate) const fn mode_flags(mode: Mode) -> u8 {
    match mode {
        Mode::Exclusive => 0,
        Mode::Shared => FLAG_SHARED,
    }
}

/// What an optional field costs beside its value: the tag and the length.
pub(crate) const OPTION_HEADER_BYTES: usize = 3;

/// Takes fields off the front of a body. Each call names the field, for the error.
#[derive(Clone, Copy)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(crate) fn new(body: &'a [u8]) -> Self {
        Self { rest: body }
    }

    pub(crate) fn rest(&self) -> &'a [u8] {
        self.rest
    }

    #[inline]
    pub(crate) fn array<const N: usize>(
        &mut self,
        field: &'static str,
    ) -> Result<[u8; N], DecodeError> {
        let Some((head, rest)) = self.rest.split_first_chunk::<N>() else {
            return Err(DecodeError::BodyTooShort { field });
        };
        self.rest = rest;
        Ok(*head)
    }

    #[inline]
    pub(crate) fn u8(&mut self, field: &'static str) -> Result<u8, DecodeError> {
        self.array(field).map(u8::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u16(&mut self, field: &'static str) -> Result<u16, DecodeError> {
        self.array(field).map(u16::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u32(&mut self, field: &'static str) -> Result<u32, DecodeError> {
        self.array(field).map(u32::from_le_bytes)
    }

    #[inline]
    pub(crate) fn u64(&mut self, field: &'static str) -> Result<u64, DecodeError> {
        self.array(field).map(u64::from_le_bytes)
    }

    /// A `u32` with an upper bound.
    #[inline]
    pub(crate) fn u32_at_most(
        &mut self,
        field: &'static str,
        value_max: u32,
    ) -> Result<u32, DecodeError> {
        at_most(field, self.u32(field)?, value_max)
    }

    /// A byte string.
    #[inline]
    pub(crate) fn bytes(&mut self, field: &'static str) -> Result<&'a [u8], DecodeError> {
        let bytes = usize::from(self.u16(field)?);
        let Some((head, rest)) = self.rest.split_at_checked(bytes) else {
            return Err(DecodeError::BodyTooShort { field });
        };
        self.rest = rest;
        Ok(head)
    }

    #[inline]
    pub(crate) fn key(&mut self) -> Result<Key<'a>, DecodeError> {
        Ok(Key::new(self.bytes("key")?)?)
    }

    #[inline]
    pub(crate) fn fence(&mut self) -> Result<Fence, DecodeError> {
        Fence::new(self.u64("fence")?).ok_or(DecodeError::Zero { field: "fence" })
    }

    /// The session's lease has a flag as well as the 0: a client that forgets to set a time must
    /// not get an endless lock.
    #[inline]
    pub(crate) fn lease(&mut self, is_session_bound: bool) -> Result<Lease, DecodeError> {
        let ttl_ms = self.u32_at_most("ttl_ms", limits::TTL_MS_MAX)?;
        match (is_session_bound, ttl_ms) {
            (true, 0) => Ok(Lease::Session),
            (true, ttl_ms) => Err(DecodeError::TtlWithSession { ttl_ms }),
            (false, 0) => Err(DecodeError::Zero { field: "ttl_ms" }),
            (false, ttl_ms) => Ok(Lease::Ttl { ttl_ms }),
        }
    }

    /// What is left, read as optional fields.
    #[inline]
    pub(crate) fn options(&mut self) -> Options<'_, 'a> {
        Options {
            reader: self,
            tag_previous: None,
        }
    }

    /// What is left must be optional fields, none of which this message knows.
    #[inline]
    pub(crate) fn skip_options(&mut self) -> Result<(), DecodeError> {
        let mut options = self.options();
        while options.next()?.is_some() {}
        Ok(())
    }
}

#[inline]
pub(crate) fn at_most(field: &'static str, value: u32, value_max: u32) -> Result<u32, DecodeError> {
    if value > value_max {
        return Err(DecodeError::NumberTooLarge {
            field,
            value,
            value_max,
        });
    }
    Ok(value)
}

/// The optional fields at the end of a message. The caller takes those it knows and lets the others
/// pass.
pub(crate) struct Options<'r, 'a> {
    reader: &'r mut Reader<'a>,
    tag_previous: Option<u8>,
}

impl<'a> Options<'_, 'a> {
    /// The next field's tag and value. Not an `Iterator`: `?` reads better than a `Result` inside
    /// an `Option`.
    #[inline]
    pub(crate) fn next(&mut self) -> Result<Option<(u8, &'a [u8])>, DecodeError> {
        if self.reader.rest.is_empty() {
            return Ok(None);
        }
        let tag = self.reader.u8("an optional field")?;
        let value = self.reader.bytes("an optional field")?;
        // With rising tags a field that came twice is caught for free, and there is one order to
        // write them in.
        if self.tag_previous.is_some_and(|previous| tag <= previous) {
            return Err(DecodeError::OptionOutOfOrder { tag });
        }
        self.tag_previous = Some(tag);
        Ok(Some((tag, value)))
    }
}

/// The value of an optional field that has one size only.
pub(crate) fn option_array<const N: usize>(tag: u8, value: &[u8]) -> Result<[u8; N], DecodeError> {
    value.try_into().map_err(|_| DecodeError::OptionSize {
        tag,
        // The length came as a u16, so it still is one.
        value_bytes: u16::try_from(value.len()).unwrap_or(u16::MAX),
        value_bytes_expected: u16::try_from(N).unwrap_or(u16::MAX),
    })
}

/// How often a lock is held. Absent when once, so that only reentrant locks pay for it.
pub(crate) fn read_hold_count(value: &[u8]) -> Result<u32, DecodeError> {
    match u32::from_le_bytes(option_array(tag::HOLD_COUNT, value)?) {
        0 => Err(DecodeError::Zero {
            field: "hold_count",
        }),
        hold_count => Ok(hold_count),
    }
}

pub(crate) fn write_hold_count(hold_count: u32, writer: &mut Writer<'_>) {
    debug_assert_ne!(hold_count, 0, "what is held is held once at least");
    if hold_count != 1 {
        writer.option(tag::HOLD_COUNT, &hold_count.to_le_bytes());
    }
}

/// For how much longer the server does not know all holders; absent when it does. Reads to the end
/// of the optional fields.
pub(crate) fn read_recovering(reader: &mut Reader<'_>) -> Result<Option<u32>, DecodeError> {
    let mut recovering_ms = None;
    let mut options = reader.options();
    while let Some((tag, value)) = options.next()? {
        if tag == tag::RECOVERING_MS {
            recovering_ms = Some(u32::from_le_bytes(option_array(tag, value)?));
        }
    }
    Ok(recovering_ms)
}

pub(crate) fn write_recovering(recovering_ms: Option<u32>, writer: &mut Writer<'_>) {
    if let Some(recovering_ms) = recovering_ms {
        writer.option(tag::RECOVERING_MS, &recovering_ms.to_le_bytes());
    }
}

/// Appends fields to a body.
pub struct Writer<'b> {
    out: &'b mut BytesMut,
}

impl<'b> Writer<'b> {
    pub(crate) fn new(out: &'b mut BytesMut) -> Self {
        Self { out }
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self, value: [u8; N]) {
        self.out.put_slice(&value);
    }

    #[inline]
    pub(crate) fn u8(&mut self, value: u8) {
        self.array(value.to_le_bytes());
    }

    #[inline]
    pub(crate) fn u16(&mut self, value: u16) {
        self.array(value.to_le_bytes());
    }

    #[inline]
    pub(crate) fn u32(&mut self, value: u32) {
        self.array(value.to_le_bytes());
    }

    #[inline]
    pub(crate) fn u64(&mut self, value: u64) {
        self.array(value.to_le_bytes());
    }

    /// The field `ttl_ms` of a lease. A flag says whether it lives by its session.
    #[inline]
    pub(crate) fn ttl_ms(&mut self, lease: Lease) {
        self.u32(match lease {
            Lease::Ttl { ttl_ms } => ttl_ms,
            Lease::Session => 0,
        });
    }

    /// A byte string.
    #[inline]
    pub(crate) fn bytes(&mut self, value: &[u8]) {
        let bytes = u16::try_from(value.len())
            .expect("field types keep their limits, all of them below 64 KiB");
        self.u16(bytes);
        self.out.put_slice(value);
    }

    /// An optional field; nothing at all when it is empty. Callers go by rising tags.
    #[inline]
    pub(crate) fn option(&mut self, tag: u8, value: &[u8]) {
        if !value.is_empty() {
            self.u8(tag);
            self.bytes(value);
        }
    }

    /// A `u16` length and then what `write` appends, which has that length.
    pub(crate) fn sized(&mut self, write: impl FnOnce(&mut Writer<'_>)) {
        let length_at = self.out.len();
        self.u16(0);
        let start = self.out.len();
        write(self);
        let bytes = u16::try_from(self.out.len() - start)
            .expect("records keep BYTES_MAX, far below 64 KiB");
        self.out[length_at..start].copy_from_slice(&bytes.to_le_bytes());
    }
}
