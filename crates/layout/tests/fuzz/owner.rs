//! Any page as an owner page.

use layout::OwnerPage;

use super::seal;

/// Byte 0 of the input, where the magic number goes, says whether the numbers that few pages get right are
/// made right.
pub(crate) fn run(data: &[u8]) {
    check(data);
    let mut page = data.to_vec();
    page.resize(page.len().max(4096), 0);
    page[..8].copy_from_slice(&layout::owner::MAGIC);
    if data.first().is_some_and(|how| how & 1 == 0) {
        page[8] = 1 + page[8] % 3;
        page[9] &= 1;
        page[71] = 0;
        page[132] %= 65;
        page[133..136].fill(0);
    }
    seal::superblock(&mut page);
    check(&page);
}

fn check(page: &[u8]) {
    let Ok(found) = OwnerPage::decode(page) else { return };
    assert_eq!(OwnerPage::decode(&found.encode()).as_ref(), Ok(&found));
    assert_eq!(found.encode()[16..132], page[16..132], "all fields are kept");
    assert!(
        found.process.host.bytes().all(|byte| byte.is_ascii_graphic()),
        "a host name that terminals can show"
    );
    assert!(found.process.host.len() <= layout::owner::HOST_BYTES_MAX);
}
