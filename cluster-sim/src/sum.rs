//! What the log adds up to, by plain rules of its own: what ledgers are compared with.

use cluster::entry::Item;
use cluster::types::{Entry, Payload};
use std::collections::{BTreeMap, BTreeSet};
use wal::Record;

/// What the log adds up to, by plain rules of its own.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) index: u64,
    is_born: bool,
    pub(crate) clock_ms: u64,
    pub(crate) reign: Option<u64>,
    /// The latest reign of which a batch counted.
    promised: Option<u64>,
    pub(crate) seq: u64,
    /// For each marker, the latest reign that promised before it, and the latest stamp.
    pub(crate) markers: BTreeMap<u64, (Option<u64>, u64)>,
    ceiling: u64,
    pub(crate) holds: BTreeMap<Vec<u8>, SumHold>,
    /// All that were ever granted, with the latest ends that the log says.
    pub(crate) granted: BTreeMap<u64, (Vec<u8>, u64)>,
    /// Grants whose records may stand behind those of what was decided later.
    pub(crate) late: BTreeSet<u64>,
    /// How many of them did.
    pub(crate) overtaken: u64,
    /// What the log says of each fence: whether it was released, and the latest end.
    said: BTreeMap<u64, (bool, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct SumHold {
    pub(crate) fence: u64,
    pub(crate) until_ms: u64,
    pub(crate) is_released: bool,
}

impl Sum {
    /// Whether the entry is one that does not count. `None`: it breaks a rule.
    pub(crate) fn add(&mut self, entry: &Entry) -> Option<bool> {
        let index = entry.log_id.index();
        self.index = index;
        let Payload::Normal(command) = &entry.payload else {
            return Some(false);
        };
        match Item::decode(command).ok()? {
            Item::Born(birth) if !self.is_born => {
                self.is_born = true;
                self.clock_ms = birth.birth_unix_ms;
            }
            Item::Reign { .. } => {
                (self.reign, self.seq) = (Some(index), 0);
                self.markers.insert(index, (self.promised, self.clock_ms));
            }
            Item::Batch(batch) => {
                let counts = self.reign == Some(batch.reign)
                    && batch.seq == self.seq + 1
                    && batch.stamp_ms >= self.clock_ms;
                if !counts {
                    return Some(true);
                }
                self.seq = batch.seq;
                self.clock_ms = batch.stamp_ms;
                self.promised = Some(batch.reign);
                for record in wal::records(&batch.records) {
                    self.add_record(&record.ok()?)?;
                }
            }
            Item::Born(_) | Item::Joined { .. } | Item::Checked { .. } | Item::Format(_) => {}
        }
        Some(false)
    }

    fn add_record(&mut self, record: &Record<'_>) -> Option<()> {
        match *record {
            Record::Ceiling { fence, .. } => {
                if fence < self.ceiling {
                    return None;
                }
                self.ceiling = fence;
            }
            Record::Granted(lease) => {
                let said = self.said.entry(lease.fence).or_default();
                said.1 = said.1.max(lease.until_unix_ms);
                let hold = SumHold {
                    fence: lease.fence,
                    until_ms: said.1,
                    is_released: said.0,
                };
                if lease.fence > self.ceiling {
                    return None;
                }
                let key = lease.key.to_vec();
                let granted = self.granted.entry(lease.fence);
                let granted = granted.or_insert((key.clone(), hold.until_ms));
                if granted.0 != key {
                    return None;
                }
                granted.1 = granted.1.max(hold.until_ms);
                let held = self.holds.entry(key).or_insert(hold);
                let is_overtaken = hold.is_released || held.fence > hold.fence;
                if is_overtaken && self.late.contains(&hold.fence) {
                    self.overtaken += 1;
                }
                match held.fence.cmp(&lease.fence) {
                    std::cmp::Ordering::Less => *held = hold,
                    std::cmp::Ordering::Equal => held.until_ms = held.until_ms.max(hold.until_ms),
                    std::cmp::Ordering::Greater if self.late.contains(&lease.fence) => {}
                    // The office writes in the order in which it decides.
                    std::cmp::Ordering::Greater => return None,
                }
            }
            Record::Renewed {
                key,
                fence,
                until_unix_ms,
            } => {
                let said = self.said.entry(fence).or_default();
                said.1 = said.1.max(until_unix_ms);
                if let Some(granted) = self.granted.get_mut(&fence) {
                    granted.1 = granted.1.max(until_unix_ms);
                }
                let held = self.holds.get_mut(key).filter(|held| held.fence == fence);
                if let Some(held) = held {
                    held.until_ms = held.until_ms.max(until_unix_ms);
                }
            }
            Record::Released { key, fence, .. } => {
                self.said.entry(fence).or_default().0 = true;
                let held = self.holds.get_mut(key).filter(|held| held.fence == fence);
                if let Some(held) = held {
                    held.is_released = true;
                }
            }
            _ => {}
        }
        Some(())
    }
}
