//! Any bytes as a pack.

use layout::PackHeader;
use layout::pack::{PackAddress, decode_damaged_pack, decode_pack, walk_records};

use super::seal;

/// Byte 0 of the input, where the magic number goes, says how much of it is made right.
pub(crate) fn run(data: &[u8]) {
    check(data);
    let mut bytes = data.to_vec();
    bytes.resize(bytes.len().max(112).next_multiple_of(4096), 0);
    bytes[..4].copy_from_slice(b"PACK");
    let how = data.first().copied().unwrap_or(0);
    let put =
        |bytes: &mut [u8], at: usize, value: u32| bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
    if how & 1 == 0 {
        bytes[4] = 2;
        bytes[5] %= 3;
        bytes[35] &= 0x0f;
    }
    if how & 2 == 0 {
        let len = bytes.len() as u32;
        put(&mut bytes, 36, len);
        let used = u32::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]);
        // On the last page, as it has to be.
        put(&mut bytes, 40, (len - used % 4096).max(112));
    }
    if how & 4 == 0 {
        // As many records as there are.
        let mut records = 0;
        let used = u32::from_le_bytes([bytes[40], bytes[41], bytes[42], bytes[43]]) as usize;
        let mut end = 112;
        let _ = walk_records(&bytes[..used.min(bytes.len())], u32::MAX, |at, raw| {
            records += 1;
            end = at as usize + raw.len();
            Ok(())
        });
        put(&mut bytes, 44, records);
        let continued = u32::from_le_bytes([bytes[96], bytes[97], bytes[98], bytes[99]]);
        let continued = if bytes[5] == 0 { continued.min(records) } else { 0 };
        put(&mut bytes, 96, continued);
        bytes.truncate(end.next_multiple_of(4096));
        let len = bytes.len() as u32;
        put(&mut bytes, 36, len);
        put(&mut bytes, 40, end as u32);
    }
    seal::pack(&mut bytes);
    check(&bytes);
}

fn check(bytes: &[u8]) {
    let Ok(header) = PackHeader::decode(bytes) else { return };
    let place = PackAddress {
        uuid: &header.uuid,
        segment: header.segment,
        generation: header.generation,
        offset: header.offset,
    };
    let mut at_expected = 112;
    let mut crc = 0;
    let mut records = 0;
    let decoded = decode_pack(bytes, place, |at, record| {
        assert_eq!(at, at_expected);
        at_expected += record.header.record_len() as u32;
        crc = crc32c::crc32c_append(crc, &bytes[at as usize..at as usize + 16]);
        records += 1;
    });
    let (mut headers, mut damaged) = (0, 0);
    let by_headers = decode_damaged_pack(bytes, place, |_, _, payload| {
        headers += 1;
        damaged += u32::from(payload.is_none());
    });
    assert!(by_headers.is_err() || headers == header.records);
    assert_eq!(decoded.is_ok(), by_headers.is_ok() && damaged == 0);
    if decoded.is_err() {
        assert_eq!(records, 0, "no record of a refused pack is told");
        return;
    }
    assert_eq!((records, at_expected), (header.records, header.used));
    assert!(header.continued <= records);
    let elsewhere = PackAddress { generation: !header.generation, ..place };
    assert!(decode_pack(bytes, elsewhere, |_, _| ()).is_err());
    let mut again = bytes.to_vec();
    header.encode(crc, &mut again);
    assert_eq!(decode_pack(&again, place, |_, _| ()), Ok(header.clone()));
}
