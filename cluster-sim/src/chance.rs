//! Chance that can be repeated. Everything random in this process comes from its seed: what the
//! simulation draws itself, and what libraries ask the kernel for (election timeouts, hash keys,
//! the order in which `select!` looks).

pub(crate) use disk::forgetful::Dice;
use parking_lot::Mutex;

static KERNEL: Mutex<Dice> = Mutex::new(Dice(0));

/// What the kernel will give from here on.
pub(crate) fn seed_kernel(seed: u64) {
    KERNEL.lock().0 = seed;
}

/// Takes the place of the C library's function of this name, for std and the crate `getrandom`.
#[unsafe(no_mangle)]
extern "C" fn getrandom(buffer: *mut u8, bytes: usize, _flags: u32) -> isize {
    let mut kernel = KERNEL.lock();
    for at in 0..bytes {
        // SAFETY: the caller gives a buffer of so many bytes, as getrandom(2) demands.
        unsafe { buffer.add(at).write(kernel.roll() as u8) };
    }
    bytes as isize
}

/// A number between these two, both included.
pub(crate) fn between(dice: &mut Dice, low: u64, high: u64) -> u64 {
    low + dice.below(high - low + 1)
}

/// `true` so many times of a thousand.
pub(crate) fn permille(dice: &mut Dice, times: u64) -> bool {
    dice.below(1_000) < times
}

/// A clock that runs at its own speed.
pub(crate) fn drifted_us(us: u64, ppm: i64) -> u64 {
    us.saturating_add_signed(us as i64 / 1_000 * ppm / 1_000)
}
