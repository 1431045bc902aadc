//! Data whose structure generic compression does not see.

use super::{SplitMix64, random};

/// Normally distributed numbers.
fn normal(seed: u64) -> impl Iterator<Item = f32> {
    let mut random = SplitMix64(seed);
    std::iter::repeat_with(move || {
        // The sum of twelve uniform numbers is nearly normal. Additions alone are the same on every machine.
        let sum: f32 = (0..12).map(|_| (random.next() >> 40) as f32 / (1 << 24) as f32).sum();
        (sum - 6.0) * 0.02
    })
}

/// Returns bfloat16 numbers of a normal distribution, as weights of a network.
pub fn bfloat16(seed: u64, len: usize) -> Vec<u8> {
    normal(seed).flat_map(|number| ((number.to_bits() >> 16) as u16).to_le_bytes()).take(len).collect()
}

/// Returns floats of 32 bits of a normal distribution.
pub fn float32(seed: u64, len: usize) -> Vec<u8> {
    normal(seed).flat_map(f32::to_le_bytes).take(len).collect()
}

/// Returns samples of 16 bits, little-endian, that wander and have noise, as of a sound or a sensor.
pub fn samples16(seed: u64, len: usize) -> Vec<u8> {
    let (mut random, mut level) = (SplitMix64(seed), 0_i64);
    let sample = std::iter::repeat_with(move || {
        level += random.below(401) as i64 - 200 - level / 64;
        (level + random.below(33) as i64) as u16
    });
    sample.flat_map(u16::to_le_bytes).take(len).collect()
}

/// Returns bytes that change little from one to the next, as the brightness of a photograph.
pub fn smooth(seed: u64, len: usize) -> Vec<u8> {
    let (mut random, mut level) = (SplitMix64(seed), 0_u8);
    let step = move || {
        level =
            level.wrapping_add((random.below(4) + random.below(4) + random.below(4)) as u8).wrapping_sub(4);
        level
    };
    std::iter::repeat_with(step).take(len).collect()
}

/// Brightness of a picture with rows of `row` bytes: a byte is near the ones to the left, above and between.
pub fn picture(seed: u64, row: usize, len: usize) -> Vec<u8> {
    let steps = random(seed, len);
    let mut pixels: Vec<i32> = Vec::with_capacity(len);
    for (at, step) in steps.into_iter().enumerate() {
        let left = if at % row > 0 { pixels[at - 1] } else { 128 };
        let up = if at >= row { pixels[at - row] } else { left };
        let between = if at % row > 0 && at >= row { pixels[at - row - 1] } else { up };
        // Edges go on in the next row; the rest is noise.
        let edge = if at < row && step % 8 == 0 { i32::from(step) - 128 } else { 0 };
        let noise = i32::from(step / 8 % 8) - 4;
        // Towards the middle, or noise would add up.
        let near = left + up - between;
        pixels.push((near + (128 - near) / 16 + edge + noise).clamp(0, 255));
    }
    pixels.into_iter().map(|pixel| pixel as u8).collect()
}

/// Returns records of 24 bytes, as of a symbol table or an array of structures: a time, a small number,
/// flags, an address and a size.
pub fn records(seed: u64, len: usize) -> Vec<u8> {
    let (mut random, mut time, mut address) = (SplitMix64(seed), 1_760_000_000_000_u64, 0x40_1000_u64);
    let mut out = Vec::with_capacity(len + 24);
    while out.len() < len {
        time += 1 + random.below(50);
        let size = 16 * (1 + random.below(60));
        address += size;
        out.extend_from_slice(&time.to_le_bytes());
        out.extend_from_slice(&(random.below(200) as u16).to_le_bytes());
        out.extend_from_slice(&[0x12, 0, 14, 0]);
        out.extend_from_slice(&address.to_le_bytes()[..6]);
        out.extend_from_slice(&(size as u32).to_le_bytes());
    }
    out.truncate(len);
    out
}

/// Returns x86-64 code: moves, comparisons, jumps, and calls of some functions from many places.
pub fn x86_code(seed: u64, len: usize) -> Vec<u8> {
    let mut random = SplitMix64(seed);
    let functions: Vec<u32> = (0..64).map(|_| (random.below(1 << 20) * 16) as u32).collect();
    let start = random.below(1 << 22) as u32;
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        let register = random.below(8) as u8;
        let operand = |out: &mut Vec<u8>, target: u32| {
            let next = start.wrapping_add(out.len() as u32 + 4);
            out.extend_from_slice(&target.wrapping_sub(next).to_le_bytes());
        };
        match random.below(16) {
            0..3 => {
                out.push(0xe8);
                let function = functions[(random.below(64) * random.below(64) / 64) as usize];
                operand(&mut out, function);
            }
            3 => {
                out.extend_from_slice(&[0x0f, 0x84 + (register & 1)]);
                let target = start.wrapping_add(out.len() as u32 + 64 + random.below(1024) as u32);
                operand(&mut out, target);
            }
            4 => {
                out.extend_from_slice(&[0x48, 0x8d, 0x05 | register << 3]);
                let data = 0x90_0000 + random.below(200) as u32 * 8;
                operand(&mut out, data);
            }
            5..9 => out.extend_from_slice(&[0x48, 0x89, 0xc0 | register << 3 | random.below(8) as u8]),
            9..12 => out.extend_from_slice(&[0x48, 0x8b, 0x40 | register, random.below(16) as u8 * 8]),
            12 => out.extend_from_slice(&[0x48, 0x85, 0xc0 | (register * 9)]),
            13 => out.extend_from_slice(&[0x74, random.below(100) as u8]),
            14 => out.extend_from_slice(&[0x31, 0xc0, 0x5b, 0x5d, 0xc3]),
            _ => out.extend_from_slice(&[0x55, 0x48, 0x89, 0xe5, 0x53]),
        }
    }
    out.truncate(len);
    out
}
