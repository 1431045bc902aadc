#!/usr/bin/env python3
"""Objects in a bucket of the lab's S3 gateway, whose hashes are kept in a file.

    s3_objects.py put ENDPOINT FILE COUNT   puts COUNT more objects; the hash of each is in FILE once it was acknowledged
    s3_objects.py check ENDPOINT FILE       gets all of them and compares

Half of the data compresses: text and random bytes by turns, 1 byte to 12 MiB. Exits with 1 if an object differs.
"""

import hashlib
import json
import os
import random
import sys

import boto3
from botocore.config import Config

BUCKET = 'lab'
SIZES = (1, 4096, 100_000, 1 << 20, 12 << 20)


def data(seed: int) -> bytes:
    """Bytes of an object, by its number."""
    chance = random.Random(seed)
    size = SIZES[seed % len(SIZES)]
    if seed % 2:
        return chance.randbytes(size)
    words = [b'%d' % chance.randrange(10 ** chance.randrange(1, 9)) for _ in range(2000)]
    text = b' '.join(chance.choices(words, k=size // 4 + 1))
    return (text * (size // len(text) + 1))[:size]


def main() -> int:
    action, endpoint, file = sys.argv[1:4]
    s3 = boto3.client('s3', endpoint_url=endpoint, aws_access_key_id='lab', aws_secret_access_key='lab-secret', region_name='us-east-1',
                      config=Config(retries={'max_attempts': 5}, connect_timeout=10, read_timeout=120))
    known = {}
    if os.path.exists(file):
        with open(file) as opened:
            known = dict(json.loads(line) for line in opened)
    if action == 'put':
        s3.create_bucket(Bucket=BUCKET)
        with open(file, 'a') as opened:
            for number in range(len(known), len(known) + int(sys.argv[4])):
                name, body = 'object-%d' % number, data(number)
                s3.put_object(Bucket=BUCKET, Key=name, Body=body)
                print(json.dumps((name, hashlib.sha256(body).hexdigest())), file=opened, flush=True)
        return 0
    bad = [name for name, digest in known.items()
           if hashlib.sha256(s3.get_object(Bucket=BUCKET, Key=name)['Body'].read()).hexdigest() != digest]
    print('%d objects, %d differ %s' % (len(known), len(bad), ' '.join(bad)))
    return 1 if bad or not known else 0


if __name__ == '__main__':
    sys.exit(main())
