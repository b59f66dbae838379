import sys, random, torch, math
from transformers import GotOcr2ImageProcessor, Idefics3ImageProcessor, Gemma3ImageProcessor
from transformers.models.got_ocr2.image_processing_got_ocr2 import get_optimal_tiled_canvas
from transformers.image_processing_backends import TorchvisionBackend
from transformers.image_utils import SizeDict
R=random.Random(int(sys.argv[1])); N=int(sys.argv[2])
PIX=torch.zeros(1,dtype=torch.uint8)
img=lambda h,w: PIX.expand(1,3,h,w)
def rz(self,image,size,**k):
    if not(size.height and size.width): raise ValueError('x')
    return img(size.height,size.width)
TorchvisionBackend.resize=rz
I=Idefics3ImageProcessor(); G=Gemma3ImageProcessor()
def mag(b): return min(65535,R.randint(1,1<<R.randint(1,b)))
def size(tw,th,e):
    k=R.randrange(8)
    if k==0: s=(R.randint(1,65535),R.randint(1,65535))
    elif k==1: s=(mag(16),mag(16))
    elif k==2: m=mag(12); s=(R.randint(1,16)*m,R.randint(1,16)*m)
    elif k==3: m=mag(11); s=((2*R.randint(1,16)+1)*m,2*R.randint(1,16)*m)
    elif k==4: l=mag(16); s=(l, R.randint(1,20)*tw*th//(2*l)+R.randint(-1,1))
    elif k==5: s=(R.randint(1,14)*tw+R.randint(-1,1),R.randint(1,14)*th+R.randint(-1,1))
    elif k==6: n=R.randint(1,9); b=mag(13); s=(int(b*e)+R.randint(-1,1), b)
    else: a=mag(16); s=(a,a+R.randint(-2,2))
    if R.random()<.5: s=s[::-1]
    return tuple(min(max(x,1),65535) for x in s)
out=sys.stdout
for _ in range(N//100):
    tw=mag(R.choice([6,9,12,16])); th=max(2,tw if R.random()<.6 else mag(12)); most=R.randint(0,R.choice([3,12,12,40])); least=R.choice([1,1,most,R.randint(0,most+2)])
    for _ in range(100):
        w,h=size(tw,th,R.randint(1,12)+.5*R.randint(0,1))
        c,r=get_optimal_tiled_canvas.__wrapped__((h,w),(th,tw),least,most)
        out.write(f"r {tw} {th} {least} {most} {w} {h} {c} {r}\n")
    T=R.randint(2,R.choice([8,64,600,5000])); E=R.choice([T*R.randint(1,12),R.randint(2,300),R.randint(2,4200),R.randint(4090,9000),R.randint(2,1<<31)])
    if R.random()<.15:
        E=R.choice([49,98,103,107,161,187,196,197,206,214,392,1236]); T=R.choice([d for d in range(2,E+1) if E%d==0])
    for _ in range(100):
        w,h=size(T,T,R.choice([E,E/T,1,2]))
        f=I.resize(img(h,w),SizeDict(longest_edge=E))
        try: v=I.resize_for_vision_encoder(f,T).shape
        except ValueError: v=(0,0)
        out.write(f"c {E} {T} {w} {h} {f.shape[-1]} {f.shape[-2]} {v[-1]} {v[-2]}\n")
    m=mag(R.choice([3,6,9,12,16])); M=R.randint(1,R.choice([2,4,8,40])); q=R.choice([1.2,1.0,R.uniform(.5,8),R.randint(1,30)/R.randint(1,12),R.randint(1,9)+.5])
    for _ in range(100):
        w,h=size(m,m,R.choice([q,R.randint(1,M+1)+.5]))
        p=G.pan_and_scan_batched(img(h,w),m,M,q)
        if p and p[-1].numel()==0: a="1000000 0 0 0 0"
        elif not p: a="0 0 0 0 0"
        else: a=f"{len(p)} {p[0].shape[-1]} {p[0].shape[-2]} {p[-1].shape[-1]} {p[-1].shape[-2]}"
        out.write(f"s {m} {M} {q!r} {w} {h} {a}\n")
