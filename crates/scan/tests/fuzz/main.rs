//! The fuzz target of `fuzz/` for answers of S3 servers, run briefly on damaged copies of valid ones. See
//! `fuzz/README.md`.

#[path = "../../../layout/tests/fuzz/harness.rs"]
mod harness;

fn page(objects: &[(&str, u64)], token: Option<&str>) -> Vec<u8> {
    let mut text = String::from(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?><ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\">\
         <Name>bucket</Name><Prefix>logs/2026</Prefix><KeyCount>2</KeyCount><MaxKeys>1000</MaxKeys>\
         <EncodingType>url</EncodingType>",
    );
    text += &format!("<IsTruncated>{}</IsTruncated>", token.is_some());
    for (key, bytes) in objects {
        text += &format!(
            "<Contents><Key>{key}</Key><LastModified>2026-11-01T00:00:00.000Z</LastModified>\
             <ETag>&quot;9a0364b9e99bb480dd25e1f0284c8555&quot;</ETag><Size>{bytes}</Size>\
             <Owner><ID>75aa57f0</ID><DisplayName>me</DisplayName></Owner>\
             <StorageClass>STANDARD</StorageClass></Contents>"
        );
    }
    if let Some(token) = token {
        text += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
    }
    text += "<CommonPrefixes><Prefix>logs/2026/a/</Prefix></CommonPrefixes></ListBucketResult>";
    text.into_bytes()
}

/// Valid answers, the same in every run.
fn answers() -> Vec<Vec<u8>> {
    let objects =
        [("logs/2026/a/b/c.json", 4097), ("logs/2026%2F%C3%A4+1", 1), ("logs/2026", u64::MAX / 32), ("x", 0)];
    let error = "<Error><Code>AccessDenied</Code><Message>no &lt;access&gt;</Message></Error>";
    vec![
        page(&[], None),
        page(&objects, None),
        [page(&objects, Some("1")), vec![0], page(&objects, Some("2")), vec![0], page(&[], None)].concat(),
        error.as_bytes().to_vec(),
    ]
}

#[test]
fn s3_answers_target() {
    harness::fuzz("s3_answers_target", &answers(), scan::testing::fuzz_s3_answers);
}

/// See fuzz/README.md.
#[test]
#[ignore = "prepares longer runs: see fuzz/README.md"]
fn write_corpus() {
    harness::write_corpus("s3_answers", &answers());
}
