import sys, subprocess, random, numpy as np, math, os, time
from PIL import Image
from transformers import GotOcr2ImageProcessor, Idefics3ImageProcessor, Gemma3ImageProcessor, SmolVLMImageProcessor
N=int(sys.argv[1]); only=sys.argv[2:] or ['ratio','ceil','scan']
RAW='/tmp/work/p2/target/img%s.raw'%os.getpid()
rng=np.random.default_rng(int(os.environ.get('SEED','1'))); 
def fnv(b):
    h=0xCBF29CE484222325
    a=np.frombuffer(b,np.uint8)
    for x in a.tolist(): h=((h^x)*0x100000001B3)&0xFFFFFFFFFFFFFFFF
    return f"{h:016x}"
p=subprocess.Popen(['target/release/examples/views'],stdin=subprocess.PIPE,stdout=subprocess.PIPE,text=True)
def side():
    k=rng.integers(6)
    if k==0: return int(rng.integers(1,4))
    if k==1: return int(rng.integers(1,40))
    if k<5: return int(np.exp(rng.uniform(0,np.log(500))))
    return int(rng.integers(1,900))
vals=0; cnt={}; bad=0; ref=0
t0=time.time()
for i in range(N):
  kind=only[i%len(only)]
  w,h=side(),side()
  r=int(rng.integers(1,4))
  img=rng.integers(0,256,(h,w,3),dtype=np.uint8)
  if rng.integers(3)==0: img=(img>127).astype(np.uint8)*255
  common=dict(resample=r,do_rescale=False,do_normalize=False,do_convert_rgb=True)
  if kind=='ratio':
    tw,th=int(rng.integers(1,60)),int(rng.integers(2,60))
    if rng.integers(2): tw=th
    most=int(rng.integers(1,14)); least=int(rng.integers(0,most+2)); cut=int(rng.integers(5)>0)
    proc=GotOcr2ImageProcessor(size={"height":th,"width":tw},crop_to_patches=bool(cut),min_patches=least,max_patches=most,**common)
    args=[tw,th,least,most,cut]; key='num_patches'
  elif kind=='ceil':
    T=int(rng.integers(2,50)); E=int(T*rng.integers(1,6)) if rng.integers(2) else int(rng.integers(2,200)); split=int(rng.integers(5)>0)
    if rng.integers(20)==0: E=int(rng.integers(4090,4200)); T=int(rng.integers(700,3000))
    cls=Idefics3ImageProcessor if rng.integers(2) else SmolVLMImageProcessor
    proc=cls(size={"longest_edge":E},max_image_size={"longest_edge":T},do_image_splitting=bool(split),**common)
    args=[E,T,split]
  else:
    vw,vh=int(rng.integers(2,60)),int(rng.integers(1,60)); on=int(rng.integers(6)>0)
    m=int(rng.integers(1,60)); M=int(rng.integers(1,9)); q=float(rng.choice([1.0,1.2,1.5,2.25,0.5]))
    proc=Gemma3ImageProcessor(size={"height":vh,"width":vw},do_pan_and_scan=bool(on),pan_and_scan_min_crop_size=m,pan_and_scan_max_num_crops=M,pan_and_scan_min_ratio_to_activate=q,**common)
    args=[vw,vh,on,m,M,repr(q)]
  img.tofile(RAW)
  try:
    o=proc([[Image.fromarray(img)]] if kind=='ceil' else [Image.fromarray(img)],return_tensors='np')
    pv=o['pixel_values']; pv=pv[0] if kind=='ceil' else pv
    pv=np.ascontiguousarray(pv.transpose(0,2,3,1)).astype(np.float64); b=pv.astype(np.uint8); assert (b==pv).all()
    if kind=='ceil' : assert (o['pixel_attention_mask']==1).all()
    vals+=b.size; want=f"{len(b)}"
  except (RuntimeError,ValueError) as e: want='refused '+str(e)[:60]; ref+=1
  p.stdin.write(' '.join(map(str,[kind,w,h,r,RAW]+args))+'\n'); p.stdin.flush()
  got=p.stdout.readline().strip()
  cnt[kind]=cnt.get(kind,0)+1
  if got==want and not (np.fromfile(RAW+'.out',np.uint8)==b.reshape(-1)).all(): got='bytes'
  if got!=want and not (got.startswith('refused') and want.startswith('refused')):
    bad+=1; print('DIFF',kind,w,h,r,args,got,want)
print('cases',cnt,'bytes',vals,'refusals',ref,'bad',bad,'time',time.time()-t0)
