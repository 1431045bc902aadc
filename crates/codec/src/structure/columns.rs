//! Data as a table of bytes, stored column by column. A column of one field, or of one byte of a number, has
//! values of its own, and often changes little from row to row.

use super::prefix_sum;

/// Longest row, in bytes.
pub(super) const STRIDE_MAX: usize = 512;

/// What a column stores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// Its bytes.
    None = 0,
    /// Each byte minus the one in the row before.
    Difference = 1,
    /// Each byte XOR the one in the row before.
    Xor = 2,
}

/// Rows of `stride` bytes. The last one may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Columns {
    /// 2 to [`STRIDE_MAX`].
    stride: u16,
    /// Binary logarithm of the size in bytes of floats that are rotated left by one bit, so that a byte holds
    /// the exponent without the sign. 0: no rotation. Otherwise the stride is this size.
    rotated_log: u8,
    /// Two bits a column, from the lowest.
    changes: [u8; STRIDE_MAX / 4],
}

/// Largest binary logarithm of the size of floats.
pub(super) const ROTATED_LOG_MAX: u8 = 3;

impl Columns {
    /// Columns that store their bytes. `None`: stride or size are out of range.
    pub(crate) fn new(stride: usize, rotated_log: u8) -> Option<Columns> {
        let sound = (2..=STRIDE_MAX).contains(&stride)
            && rotated_log <= ROTATED_LOG_MAX
            && (rotated_log == 0 || stride == 1 << rotated_log);
        sound.then_some(Columns { stride: stride as u16, rotated_log, changes: [0; STRIDE_MAX / 4] })
    }

    /// The same with one change for all columns.
    pub(super) fn with_change(mut self, change: Change) -> Columns {
        (0..self.stride()).for_each(|column| self.set_change(column, change));
        self
    }

    /// The same with the change that makes each column most uneven, judged by its first `rows_max` rows.
    pub(super) fn with_changes(mut self, data: &[u8], rows_max: usize) -> Columns {
        for column in 0..self.stride() {
            let changes = [Change::None, Change::Difference, Change::Xor];
            // Counts stop at 255, which is uneven enough.
            let (mut counts, mut pairs) = ([[0_u8; 256]; 3], [0_u32; 3]);
            let mut before = 0;
            for row in data.chunks(self.stride()).take(rows_max) {
                let Some(byte) = self.rotated(row, column) else { break };
                for (number, change) in changes.into_iter().enumerate() {
                    let changed = match change {
                        Change::None => byte,
                        Change::Difference => byte.wrapping_sub(before),
                        Change::Xor => byte ^ before,
                    };
                    let count = &mut counts[number][usize::from(changed)];
                    pairs[number] = pairs[number].wrapping_add(u32::from(*count));
                    *count = count.saturating_add(1);
                }
                before = byte;
            }
            // More pairs of equal bytes are less entropy. A change has to gain a few.
            let mut most = (pairs[0] + pairs[0] / 16 + 2, Change::None);
            for (pairs, change) in pairs.into_iter().zip(changes).skip(1) {
                if pairs > most.0 {
                    most = (pairs, change);
                }
            }
            self.set_change(column, most.1);
        }
        self
    }

    /// Returns the byte of a column in a row, as [`Columns::apply`] stores it without changes.
    fn rotated(&self, row: &[u8], column: usize) -> Option<u8> {
        let byte = *row.get(column)?;
        // An incomplete float is not rotated.
        if self.rotated_log == 0 || row.len() < self.stride() {
            return Some(byte);
        }
        Some(byte << 1 | row[(column + self.stride() - 1) % self.stride()] >> 7)
    }

    pub(super) fn stride(&self) -> usize {
        usize::from(self.stride)
    }

    pub(super) fn rotated_log(&self) -> u8 {
        self.rotated_log
    }

    pub(super) fn change(&self, column: usize) -> Change {
        match self.changes[column / 4] >> (column % 4 * 2) & 3 {
            1 => Change::Difference,
            2 => Change::Xor,
            _ => Change::None,
        }
    }

    pub(super) fn set_change(&mut self, column: usize, change: Change) {
        let shift = column % 4 * 2;
        let others = self.changes[column / 4] & !(3 << shift);
        self.changes[column / 4] = others | (change as u8) << shift;
    }

    /// Changes of all columns, two bits each.
    pub(super) fn changes(&self) -> &[u8] {
        &self.changes[..self.stride().div_ceil(4)]
    }

    /// Lengths of the columns of `len` bytes: the first `rest` columns have a row more than the others.
    fn heights(&self, len: usize) -> (usize, usize) {
        (len / self.stride(), len % self.stride())
    }

    pub(super) fn apply(&self, input: &[u8], out: &mut [u8]) {
        match (self.stride, self.rotated_log) {
            (2, 0) => split_2(input, out, 0),
            (2, _) => split_2(input, out, 1),
            (4, 0) => split_4(input, out, 0),
            (4, _) => split_4(input, out, 1),
            (8, 0) => split_8(input, out, 0),
            (8, _) => split_8(input, out, 1),
            _ => self.gather(input, out),
        }
        let (rows, rest) = self.heights(input.len());
        let mut left = out;
        for column in 0..self.stride() {
            let (here, behind) = left.split_at_mut(rows + usize::from(column < rest));
            left = behind;
            match self.change(column) {
                Change::None => {}
                Change::Difference => step_back(here, u8::wrapping_sub),
                Change::Xor => step_back(here, |byte, before| byte ^ before),
            }
        }
    }

    /// Restores `stored`, which is changed, into `out`, which has the same length.
    pub(super) fn restore(&self, stored: &mut [u8], out: &mut [u8]) {
        let (rows, rest) = self.heights(stored.len());
        let mut left = &mut *stored;
        for column in 0..self.stride() {
            let (here, behind) = left.split_at_mut(rows + usize::from(column < rest));
            left = behind;
            match self.change(column) {
                Change::None => {}
                Change::Difference => prefix_sum::add(here),
                Change::Xor => prefix_sum::xor(here),
            }
        }
        match (self.stride, self.rotated_log) {
            (2, 0) => join_2(stored, out, 0),
            (2, _) => join_2(stored, out, 1),
            (4, 0) => join_4(stored, out, 0),
            (4, _) => join_4(stored, out, 1),
            (8, 0) => join_8(stored, out, 0),
            (8, _) => join_8(stored, out, 1),
            _ => self.scatter(stored, out),
        }
    }

    /// Number of rows and of bytes of a row that are transposed by tiles. The others are single bytes.
    fn tiled(&self, len: usize) -> (usize, usize) {
        (len / self.stride() / TILE * TILE, self.stride() / TILE * TILE)
    }

    fn gather(&self, input: &[u8], out: &mut [u8]) {
        let (stride, (rows, rest)) = (self.stride(), self.heights(input.len()));
        let (tiled_rows, tiled_columns) = self.tiled(input.len());
        let start = |column: usize| column * rows + column.min(rest);
        for first_row in (0..tiled_rows).step_by(TILE) {
            for first in (0..tiled_columns).step_by(TILE) {
                let tile = std::array::from_fn(|row| {
                    let row = &input[(first_row + row) * stride + first..];
                    u64::from_le_bytes(*row.first_chunk().unwrap_or(&[0; TILE]))
                });
                for (column, bytes) in (first..).zip(transposed(tile)) {
                    out[start(column) + first_row..][..TILE].copy_from_slice(&bytes.to_le_bytes());
                }
            }
        }
        for column in 0..stride {
            let done = if column < tiled_columns { tiled_rows } else { 0 };
            let here = &mut out[start(column) + done..start(column + 1)];
            let at = (done * stride + column).min(input.len());
            here.iter_mut().zip(input[at..].iter().step_by(stride)).for_each(|(to, from)| *to = *from);
        }
    }

    fn scatter(&self, stored: &[u8], out: &mut [u8]) {
        let (stride, (rows, rest)) = (self.stride(), self.heights(stored.len()));
        let (tiled_rows, tiled_columns) = self.tiled(stored.len());
        let start = |column: usize| column * rows + column.min(rest);
        for first_row in (0..tiled_rows).step_by(TILE) {
            for first in (0..tiled_columns).step_by(TILE) {
                let tile = std::array::from_fn(|column| {
                    let column = &stored[start(first + column) + first_row..];
                    u64::from_le_bytes(*column.first_chunk().unwrap_or(&[0; TILE]))
                });
                for (row, bytes) in (first_row..).zip(transposed(tile)) {
                    out[row * stride + first..][..TILE].copy_from_slice(&bytes.to_le_bytes());
                }
            }
        }
        for column in 0..stride {
            let done = if column < tiled_columns { tiled_rows } else { 0 };
            let here = &stored[start(column) + done..start(column + 1)];
            let at = (done * stride + column).min(out.len());
            out[at..].iter_mut().step_by(stride).zip(here).for_each(|(to, from)| *to = *from);
        }
    }
}

/// Rows and columns of a tile.
const TILE: usize = 8;

/// Transposes eight rows of eight bytes (Warren, "Hacker's Delight", 7-3).
fn transposed(mut tile: [u64; TILE]) -> [u64; TILE] {
    for (step, mask) in
        [(4, 0x0000_0000_ffff_ffff_u64), (2, 0x0000_ffff_0000_ffff), (1, 0x00ff_00ff_00ff_00ff)]
    {
        for pair in 0..TILE / 2 {
            let upper = pair / step * step * 2 + pair % step;
            let lower = upper + step;
            let bits = step * 8;
            let swapped = (tile[upper] >> bits ^ tile[lower]) & mask;
            tile[lower] ^= swapped;
            tile[upper] ^= swapped << bits;
        }
    }
    tile
}

fn split_2(input: &[u8], out: &mut [u8], bits: u32) {
    let rows = input.len() / 2;
    let (low, high) = out.split_at_mut(input.len() - rows);
    let (words, rest) = input.as_chunks::<2>();
    let word = |bytes: &[u8; 2]| u16::from_le_bytes(*bytes).rotate_left(bits);
    low.iter_mut().zip(words).for_each(|(to, row)| *to = word(row) as u8);
    high.iter_mut().zip(words).for_each(|(to, row)| *to = (word(row) >> 8) as u8);
    // An incomplete number is not rotated.
    rest.iter().for_each(|byte| low[rows] = *byte);
}

fn join_2(stored: &[u8], out: &mut [u8], bits: u32) {
    let rows = stored.len() / 2;
    let (low, high) = stored.split_at(stored.len() - rows);
    let (words, rest) = out.as_chunks_mut::<2>();
    for ((row, low), high) in words.iter_mut().zip(low).zip(high) {
        *row = u16::from_le_bytes([*low, *high]).rotate_right(bits).to_le_bytes();
    }
    rest.iter_mut().for_each(|byte| *byte = low[rows]);
}

/// Rows of 4 and 8 bytes that are split together, so that the compiler does it with vectors.
const GROUP: usize = 16;

/// Separates bytes at even and odd places.
fn halves<const WHOLE: usize, const HALF: usize>(bytes: &[u8; WHOLE]) -> [[u8; HALF]; 2] {
    let (mut even, mut odd) = ([0; HALF], [0; HALF]);
    let words = || bytes.as_chunks::<2>().0.iter().map(|word| u16::from_le_bytes(*word));
    even.iter_mut().zip(words()).for_each(|(to, word)| *to = word as u8);
    odd.iter_mut().zip(words()).for_each(|(to, word)| *to = (word >> 8) as u8);
    [even, odd]
}

/// The inverse of [`halves`].
fn whole<const HALF: usize, const WHOLE: usize>([even, odd]: [&[u8; HALF]; 2]) -> [u8; WHOLE] {
    let mut bytes = [0; WHOLE];
    for at in 0..HALF {
        bytes[at * 2] = even[at];
        bytes[at * 2 + 1] = odd[at];
    }
    bytes
}

/// A group of [`GROUP`] rows, at its place in each column.
fn group<'a>(
    columns: &'a [u8],
    start: &impl Fn(usize) -> usize,
    column: usize,
    number: usize,
) -> &'a [u8; GROUP] {
    columns.get(start(column) + number * GROUP..).and_then(|from| from.first_chunk()).unwrap_or(&[0; GROUP])
}

fn split_4(input: &[u8], out: &mut [u8], bits: u32) {
    let (words, rest) = input.as_chunks::<4>();
    let start = |column: usize| column * words.len() + column.min(rest.len());
    let (groups, last) = words.as_chunks::<GROUP>();
    for (number, rows) in groups.iter().enumerate() {
        let rows = rows.map(|row| u32::from_le_bytes(row).rotate_left(bits).to_le_bytes());
        let Ok(bytes) = <&[u8; 4 * GROUP]>::try_from(rows.as_flattened()) else { return };
        let [even, odd] = halves::<{ 4 * GROUP }, { 2 * GROUP }>(bytes);
        let ([first, third], [second, fourth]) = (halves(&even), halves(&odd));
        for (column, bytes) in [first, second, third, fourth].iter().enumerate() {
            let bytes: &[u8; GROUP] = bytes;
            out[start(column) + number * GROUP..][..GROUP].copy_from_slice(bytes);
        }
    }
    for (row, bytes) in (groups.len() * GROUP..).zip(last) {
        let bytes = u32::from_le_bytes(*bytes).rotate_left(bits).to_le_bytes();
        bytes.iter().enumerate().for_each(|(column, byte)| out[start(column) + row] = *byte);
    }
    // An incomplete number is not rotated.
    rest.iter().enumerate().for_each(|(column, byte)| out[start(column) + words.len()] = *byte);
}

fn join_4(stored: &[u8], out: &mut [u8], bits: u32) {
    let (words, rest) = out.as_chunks_mut::<4>();
    let (count, tail) = (words.len(), rest.len());
    let column = |column: usize| &stored[column * count + column.min(tail)..];
    let columns = column(0).iter().zip(column(1)).zip(column(2)).zip(column(3));
    for (row, (((one, two), three), four)) in words.iter_mut().zip(columns) {
        *row = u32::from_le_bytes([*one, *two, *three, *four]).rotate_right(bits).to_le_bytes();
    }
    rest.iter_mut().enumerate().for_each(|(number, byte)| *byte = column(number)[count]);
}

fn split_8(input: &[u8], out: &mut [u8], bits: u32) {
    let (words, rest) = input.as_chunks::<8>();
    let start = |column: usize| column * words.len() + column.min(rest.len());
    let (groups, last) = words.as_chunks::<GROUP>();
    for (number, rows) in groups.iter().enumerate() {
        let rows = rows.map(|row| u64::from_le_bytes(row).rotate_left(bits).to_le_bytes());
        let Ok(bytes) = <&[u8; 8 * GROUP]>::try_from(rows.as_flattened()) else { return };
        let [even, odd] = halves::<{ 8 * GROUP }, { 4 * GROUP }>(bytes);
        for (odd, bytes) in [even, odd].iter().enumerate() {
            let [low, high] = halves::<{ 4 * GROUP }, { 2 * GROUP }>(bytes);
            for (high, bytes) in [low, high].iter().enumerate() {
                let halves: [[u8; GROUP]; 2] = halves(bytes);
                for (upper, bytes) in halves.iter().enumerate() {
                    let column = odd + high * 2 + upper * 4;
                    out[start(column) + number * GROUP..][..GROUP].copy_from_slice(bytes);
                }
            }
        }
    }
    for (row, bytes) in (groups.len() * GROUP..).zip(last) {
        let bytes = u64::from_le_bytes(*bytes).rotate_left(bits).to_le_bytes();
        bytes.iter().enumerate().for_each(|(column, byte)| out[start(column) + row] = *byte);
    }
    rest.iter().enumerate().for_each(|(column, byte)| out[start(column) + words.len()] = *byte);
}

fn join_8(stored: &[u8], out: &mut [u8], bits: u32) {
    let (words, rest) = out.as_chunks_mut::<8>();
    let (count, tail) = (words.len(), rest.len());
    let start = |column: usize| column * count + column.min(tail);
    let (groups, last) = words.as_chunks_mut::<GROUP>();
    let done = groups.len() * GROUP;
    for (number, rows) in groups.iter_mut().enumerate() {
        let columns = |column| group(stored, &start, column, number);
        let quarters: [[u8; 2 * GROUP]; 4] =
            std::array::from_fn(|low| whole([columns(low), columns(low + 4)]));
        let [even, odd] =
            [0, 1].map(|odd| whole::<{ 2 * GROUP }, { 4 * GROUP }>([&quarters[odd], &quarters[odd + 2]]));
        let bytes: [u8; 8 * GROUP] = whole([&even, &odd]);
        for (row, bytes) in rows.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *row = u64::from_le_bytes(*bytes).rotate_right(bits).to_le_bytes();
        }
    }
    for (row, bytes) in (done..).zip(last) {
        let stored = std::array::from_fn(|column| stored[start(column) + row]);
        *bytes = u64::from_le_bytes(stored).rotate_right(bits).to_le_bytes();
    }
    rest.iter_mut().enumerate().for_each(|(column, byte)| *byte = stored[start(column) + count]);
}

/// Bytes changed together.
const PIECE: usize = 16;

/// Replaces each byte by its change from the one before it.
fn step_back(column: &mut [u8], change: impl Fn(u8, u8) -> u8) {
    // From the end on, so that each byte still finds the one before it, and in pieces that are read before
    // they are written.
    let mut end = column.len();
    while end > PIECE {
        let start = end - PIECE;
        let before: [u8; PIECE] = std::array::from_fn(|at| column[start + at - 1]);
        let here = &mut column[start..end];
        here.iter_mut().zip(before).for_each(|(byte, before)| *byte = change(*byte, before));
        end = start;
    }
    for at in (1..end).rev() {
        column[at] = change(column[at], column[at - 1]);
    }
}
