//! The bytes of one file: as readers see them, and as a power cut would leave them at least.

use super::dice::Dice;
use std::collections::BTreeSet;

/// What a disk writes as a whole or not at all.
pub(super) const SECTOR_BYTES: usize = 512;

/// What a power cut does to sectors that were written and not synced.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Keep {
    Nothing,
    Everything,
    /// Those before a random one.
    Prefix,
    /// Any.
    Some,
    /// Any; and a file that grew ends at any byte in between, with zeros in place of the last of
    /// its new bytes or without.
    Torn,
}

impl Keep {
    pub const ALL: [Keep; 5] = [
        Keep::Nothing,
        Keep::Everything,
        Keep::Prefix,
        Keep::Some,
        Keep::Torn,
    ];
}

#[derive(Clone, Default)]
pub(super) struct Image {
    pub(super) live: Vec<u8>,
    pub(super) durable: Vec<u8>,
    /// Sectors that differ, or may.
    pub(super) dirty: BTreeSet<usize>,
    /// The shortest that the file was since its last sync, if it was cut shorter.
    pub(super) shortened: Option<usize>,
}

impl Image {
    pub(super) fn synced(bytes: Vec<u8>) -> Image {
        Image {
            live: bytes.clone(),
            durable: bytes,
            ..Image::default()
        }
    }

    pub(super) fn after_power_cut(&self, keep: Keep, dice: &mut Dice) -> Image {
        let mut bytes = self.durable.clone();
        if let Some(length) = self.shortened {
            let is_kept = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::Prefix | Keep::Some | Keep::Torn => dice.flip(),
            };
            bytes.truncate(if is_kept { length } else { usize::MAX });
        }
        let synced_bytes = bytes.len();
        let dirty: Vec<usize> = self.dirty.iter().copied().collect();
        let prefix = dice.below(dirty.len() as u64 + 1) as usize;
        for (index, &sector) in dirty.iter().enumerate() {
            let is_kept = match keep {
                Keep::Nothing => false,
                Keep::Everything => true,
                Keep::Prefix => index < prefix,
                Keep::Some | Keep::Torn => dice.flip(),
            };
            if is_kept {
                copy_sector(&self.live, &mut bytes, sector);
            }
        }
        if keep == Keep::Torn && synced_bytes < self.live.len() {
            self.tear_end(&mut bytes, synced_bytes, dice);
        }
        Image::synced(bytes)
    }

    /// Ends a file that grew at any byte behind what was synced, with zeros before its end or not.
    fn tear_end(&self, bytes: &mut Vec<u8>, synced_bytes: usize, dice: &mut Dice) {
        let mut between =
            |from: usize, to: usize| from + dice.below((to - from) as u64 + 1) as usize;
        let end = between(synced_bytes, self.live.len());
        let zeros_from = between(synced_bytes, end);
        bytes.truncate(synced_bytes);
        bytes.extend_from_slice(&self.live[synced_bytes..end]);
        if dice.flip() {
            bytes[zeros_from..].fill(0);
        }
    }

    /// Everything written is durable.
    pub(super) fn sync(&mut self) {
        if let Some(length) = self.shortened.take() {
            self.durable.truncate(length);
        }
        for sector in std::mem::take(&mut self.dirty) {
            copy_sector(&self.live, &mut self.durable, sector);
        }
    }
}

fn copy_sector(from: &[u8], to: &mut Vec<u8>, sector: usize) {
    let start = sector * SECTOR_BYTES;
    let end = (start + SECTOR_BYTES).min(from.len());
    if to.len() < end {
        to.resize(end, 0);
    }
    to[start..end].copy_from_slice(&from[start..end]);
}
